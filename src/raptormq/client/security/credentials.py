"""Credentials that a client signs its requests with.

The sources are environment variables, or else the file of RocketMQ's own tools, ``$ROCKETMQ_HOME/conf/tools.yml``::

    accessKey: rocketmq2
    secretKey: 12345678

``RAPTORMQ_SECRET_KEY_FILE`` names a file with only the secret, such as a mounted Secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from raptormq.errors import ConfigError
from raptormq.protocol.signing import Credentials

__all__ = ["Credentials", "credentials_from_environment", "read_tools_file"]


def credentials_from_environment(environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """Return the credentials of this process; None if none are configured.

    Raises:
        ConfigError: Only one of access key and secret key is set, the secret key is set twice, or a file cannot be
            read.
    """
    access_key, secret_key = environment.get("RAPTORMQ_ACCESS_KEY"), environment.get("RAPTORMQ_SECRET_KEY")
    if file := environment.get("RAPTORMQ_SECRET_KEY_FILE"):
        if secret_key:
            raise ConfigError("set RAPTORMQ_SECRET_KEY or RAPTORMQ_SECRET_KEY_FILE, not both")
        secret_key = _read_secret(Path(file))
    if access_key and secret_key:
        return Credentials(access_key, secret_key, environment.get("RAPTORMQ_SECURITY_TOKEN", ""))
    if access_key or secret_key:
        raise ConfigError(
            "set both RAPTORMQ_ACCESS_KEY and RAPTORMQ_SECRET_KEY (or RAPTORMQ_SECRET_KEY_FILE), or neither"
        )
    home = environment.get("ROCKETMQ_HOME")
    path = Path(home, "conf", "tools.yml") if home else None
    return read_tools_file(path) if path is not None and path.exists() else None


def read_tools_file(path: Path) -> Credentials | None:
    """Return the credentials in a tools.yml; None if the file has none. Values are strings, so 0123 is not a number.

    Raises:
        ConfigError: the file cannot be read, or only one of access key and secret key is set.
    """
    values = _yaml_values(path)
    access_key, secret_key = values.get("accessKey", ""), values.get("secretKey", "")
    if not (isinstance(access_key, str) and isinstance(secret_key, str)):
        raise ConfigError(f"{path}: accessKey and secretKey must be text")
    if bool(access_key) != bool(secret_key):
        raise ConfigError(f"{path}: give both accessKey and secretKey, or neither")
    return Credentials(access_key, secret_key) if access_key else None


def _yaml_values(path: Path) -> dict[str, object]:
    """Parse a YAML file. Errors do not contain its contents."""
    import yaml  # imported on demand, because few installations have such a file

    text = _text(path)
    try:
        values = yaml.load(text, yaml.BaseLoader)  # returns only strings, lists and maps
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigError(
            f"cannot read {path}: it is not valid YAML{where}; quote values with special characters"
        ) from None
    if values is None or values == "":
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"cannot read {path}: it has no lines of key: value")
    return values


def _read_secret(path: Path) -> str:
    secret = _text(path).strip()
    if not secret:
        raise ConfigError(f"{path} holds no secret key: it is empty")
    return secret


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:  # the error would show the contents of the file
        raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from None
