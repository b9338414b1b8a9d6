"""Connection options of commands that send requests: TLS and signatures.

All of these commands have the same options. The values are stored in the click context, from which
:func:`client_config` reads them, instead of being parameters of each command. The environment variables are those of
:mod:`raptormq.client`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from raptormq.client import ClientConfig
from raptormq.client.security import credentials_from_environment, tls_from_environment

F = TypeVar("F", bound=Callable[..., Any])

_META = "raptormq.cli.connecting"
_FILE = click.Path(dir_okay=False)
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--tls/--no-tls", {"default": None, "help": "Encrypt connections."}),
    ("--tls-ca", {"type": _FILE, "help": "Certificate authorities (PEM) for verifying servers."}),
    ("--tls-cert", {"type": _FILE, "help": "Client certificate (PEM)."}),
    ("--tls-key", {"type": _FILE, "help": "Private key (PEM) of the client certificate."}),
    (
        "--tls-check-name",
        {"is_flag": True, "default": None, "help": "Verify that certificates match the servers' names."},
    ),
    ("--access-key", {"help": "User who signs the requests."}),
    ("--secret-key-file", {"type": _FILE, "help": "File with the secret key of the user."}),
    (
        "--secret-key",
        {"help": "Secret key. Other users of the host can see it; prefer the file or the environment variable."},
    ),
)
_SECRETS = ("--secret-key", "--secret-key-file")


def connection_options(command: F) -> F:
    """Add the connection options. :func:`client_config` reads their values."""
    for name, more in reversed(_OPTIONS):
        variable = _variable(name)
        option = click.option(name, expose_value=False, callback=_keep, envvar=variable, show_envvar=True, **more)
        command = option(command)
    return command


def client_config(name_servers: str, timeout_s: float) -> ClientConfig:
    """Return the client settings of the running command.

    Raises:
        UsageError: the access key or the secret key is missing, or two secret keys are given.
        ConfigError: options and environment contradict each other, or a credentials file cannot be read.
    """
    environment = dict(os.environ) | click.get_current_context().meta.get(_META, {})
    secrets = [name for name in _SECRETS if environment.get(_variable(name))]
    if bool(secrets) != bool(environment.get(_variable("--access-key"))):
        raise click.UsageError(
            "--access-key requires --secret-key or --secret-key-file, and vice versa (or RAPTORMQ_ACCESS_KEY and "
            "RAPTORMQ_SECRET_KEY)"
        )
    if len(secrets) > 1:
        raise click.UsageError("--secret-key and --secret-key-file (or their variables) are mutually exclusive")
    return ClientConfig(
        name_servers,
        request_timeout=timeout_s,
        credentials=credentials_from_environment(environment),
        tls=tls_from_environment(environment),
    )


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        context.meta.setdefault(_META, {})[_variable(parameter.opts[0])] = text


def _variable(option: str) -> str:
    return "RAPTORMQ_" + option.partition("/")[0].removeprefix("--").replace("-", "_").upper()
