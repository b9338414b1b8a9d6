"""How the commands that talk to servers reach them: options for TLS and signatures beside the name servers' addresses.

The options are the same for every such command, so that none of them has a parameter for each: what was given is kept
with click's context, and :func:`client_config` takes it from there. Environment variables are those of
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
    ("--tls-ca", {"type": _FILE, "help": "Authorities (PEM) that servers' certificates are verified against."}),
    ("--tls-cert", {"type": _FILE, "help": "Own certificate (PEM), for servers that want one."}),
    ("--tls-key", {"type": _FILE, "help": "Key (PEM) of the own certificate."}),
    ("--tls-check-name", {"is_flag": True, "default": None, "help": "Certificates must hold the servers' names."}),
    ("--access-key", {"help": "User that requests are signed as."}),
    ("--secret-key-file", {"type": _FILE, "help": "File that holds the secret of that user, and nothing else."}),
    (
        "--secret-key",
        {"help": "The secret itself. All users of the host see options: rather use the file or the variable."},
    ),
)
_SECRETS = ("--secret-key", "--secret-key-file")


def connection_options(command: F) -> F:
    """Add the options; what they say is for :func:`client_config`."""
    for name, more in reversed(_OPTIONS):
        variable = _variable(name)
        option = click.option(name, expose_value=False, callback=_keep, envvar=variable, show_envvar=True, **more)
        command = option(command)
    return command


def client_config(name_servers: str, timeout_s: float) -> ClientConfig:
    """Return the settings of the running command's client.

    Raises:
        UsageError: one half of the credentials is missing.
        ConfigError: options or environment do not go together, or a file of credentials cannot be read.
    """
    environment = dict(os.environ) | click.get_current_context().meta.get(_META, {})
    secrets = [name for name in _SECRETS if environment.get(_variable(name))]
    if bool(secrets) != bool(environment.get(_variable("--access-key"))):
        raise click.UsageError(
            "--access-key and --secret-key go together (or RAPTORMQ_ACCESS_KEY and RAPTORMQ_SECRET_KEY); "
            "--secret-key-file has the secret in a file"
        )
    if len(secrets) > 1:
        raise click.UsageError("give --secret-key or --secret-key-file, not both (nor their variables)")
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
