"""TLS settings, named like RocketMQ's system properties (``TlsSystemConfig``).

RocketMQ reads them from ``-D`` options of the JVM. RaptorMQ reads them from ``broker.conf`` or ``namesrv.conf``. As in
RocketMQ, the file named by ``tls.config.file`` overrides them, except ``tls.server.mode`` and ``tls.enable``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raptormq.config_file import choice, parse_bool, parse_setting, read_properties
from raptormq.config_paths import path_or_none
from raptormq.errors import ConfigError
from raptormq.transport.tls.contexts import ClientAuth, ClientTls, ServerTls

DEFAULT_FILE = "/etc/rocketmq/tls.properties"
"""File that is read if it exists and ``tls.config.file`` is not set, as in RocketMQ."""

_MODE, _ENABLE, _USE, _FILE, _TEST = (
    "tls.server.mode",
    "tls.enable",
    "useTLS",
    "tls.config.file",
    "tls.test.mode.enable",
)
_CERT, _KEY, _PASSWORD = "tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword"
_TRUST, _AUTH, _NEED = "tls.server.trustCertPath", "tls.server.authClient", "tls.server.need.client.auth"
_CLIENT_CERT, _CLIENT_KEY = "tls.client.certPath", "tls.client.keyPath"
_CLIENT_PASSWORD, _CLIENT_TRUST = "tls.client.keyPassword", "tls.client.trustCertPath"
_CLIENT_AUTH = "tls.client.authServer"

SERVER_KEYS = frozenset({_MODE, _FILE, _TEST, _CERT, _KEY, _PASSWORD, _TRUST, _AUTH, _NEED})
CLIENT_KEYS = frozenset(
    {_ENABLE, _USE, _FILE, _CLIENT_CERT, _CLIENT_KEY, _CLIENT_PASSWORD, _CLIENT_TRUST, _CLIENT_AUTH}
)
TLS_KEYS = SERVER_KEYS | CLIENT_KEYS


def server_tls(pairs: Mapping[str, str]) -> ServerTls | None:
    """Return the TLS settings of a server, or None if TLS is disabled.

    TLS is disabled if there is no certificate and neither ``tls.server.mode`` nor ``tls.test.mode.enable`` is set. In
    that case a RocketMQ server enables TLS with a generated certificate, which its clients accept in test mode only.

    Raises:
        ConfigError: a value is invalid, or a setting that another one requires is missing.
    """
    values = with_file(pairs)
    mode = _word(values, _MODE, "permissive", "enforcing", "disabled")
    if mode == "disabled":
        return None
    test = _flag(values, _TEST)
    cert_path, key_path = _path(values, _CERT), _path(values, _KEY)
    if bool(cert_path) != bool(key_path):
        raise ConfigError(f"settings {_CERT} and {_KEY} belong together, and only one of them is set")
    if not cert_path and not test:
        if mode is None:
            return None
        if test is False:
            raise ConfigError(f"setting {_MODE} = {mode!r} needs {_CERT} and {_KEY}, or {_TEST}=true")
    if test or not cert_path:
        return ServerTls(mode == "enforcing")
    wanted = _client_auth(values)
    trust = _path(values, _TRUST)
    return ServerTls(mode == "enforcing", cert_path, key_path, values.get(_PASSWORD, ""), trust, wanted)


def client_tls(pairs: Mapping[str, str]) -> ClientTls | None:
    """Return the TLS settings of the broker's outgoing connections, or None if they are not encrypted.

    ``useTLS`` or else ``tls.enable`` enables TLS. If neither is set, TLS is enabled if ``tls.server.mode`` is
    ``enforcing``, as in RocketMQ.

    Raises:
        ConfigError: a value is invalid, or a setting that another one requires is missing.
    """
    wanted = _flag(pairs, _USE)
    if wanted is None:
        wanted = _flag(pairs, _ENABLE)
    if wanted is None:
        wanted = pairs.get(_MODE, "").lower() == "enforcing"
    return client_tls_of(with_file(pairs)) if wanted else None


def client_tls_of(values: Mapping[str, str]) -> ClientTls:
    """Return the TLS settings of a client from the keys ``tls.client.*``.

    Raises:
        ConfigError: a value is invalid, or a setting that another one requires is missing.
    """
    return ClientTls(
        trust_cert_path=_path(values, _CLIENT_TRUST),
        cert_path=_path(values, _CLIENT_CERT),
        key_path=_path(values, _CLIENT_KEY),
        key_password=values.get(_CLIENT_PASSWORD, ""),
        auth_server=_flag(values, _CLIENT_AUTH) or False,
    )


def with_file(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return ``pairs``, overridden by the settings in ``tls.config.file``.

    Raises:
        ConfigError: ``tls.config.file`` is set and the file cannot be read.
    """
    named = _path(pairs, _FILE)
    path = Path(named or DEFAULT_FILE)
    if not named and not path.is_file():
        return dict(pairs)
    found = read_properties(path)
    return dict(pairs) | {key: value for key, value in found.items() if key not in (_MODE, _ENABLE, _USE, _FILE)}


def _client_auth(values: Mapping[str, str]) -> ClientAuth:
    """Return whether client certificates are requested. Python verifies every certificate that it requests, so a
    request needs CA certificates."""
    wanted = _word(values, _NEED, "none", "optional", "require")
    trusted = bool(values.get(_TRUST))
    if wanted == "require" and trusted:
        return "require"
    if wanted == "optional" and trusted:
        return "optional"
    if wanted == "require" or (wanted == "optional" and _flag(values, _AUTH)):
        raise ConfigError(f"setting {_NEED} = {wanted!r} needs {_TRUST}: the CA certificates of the clients")
    return "none"


def _path(values: Mapping[str, str], key: str) -> str:
    return str(parse_setting(key, values.get(key, ""), path_or_none))


def _word(values: Mapping[str, str], key: str, *words: str) -> str | None:
    text = values.get(key)
    return str(parse_setting(key, text.lower(), choice(*words))) if text else None


def _flag(values: Mapping[str, str], key: str) -> bool | None:
    text = values.get(key)
    return bool(parse_setting(key, text, parse_bool)) if text else None
