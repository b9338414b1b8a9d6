"""``raptormq dev``: runs a name server and a broker in one process for development, demos and tests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from raptormq.broker.broker import Broker
from raptormq.broker.config import BrokerConfig, start_warnings
from raptormq.cli.broker import addresses_of
from raptormq.cli.dev_group import GroupOptions, running_group
from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.serving import Addresses, log_level_option, running, serve
from raptormq.config_file import read_properties
from raptormq.config_paths import file_path
from raptormq.errors import ConfigError
from raptormq.logs import configure_logging, get_logger
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.security.settings import ACCESS_KEYS, AccessControl
from raptormq.transport.descriptors import descriptor_limit
from raptormq.transport.tls import TLS_KEYS

logger = get_logger(__name__)

DEFAULTS = {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "autoCreateTopicEnable": "true"}
"""Default settings. The settings file overrides them, but not the command-line options."""

WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Local address for connections to a server that listens on all addresses."""

REGISTRATION_TIMEOUT_S = 10.0
"""Time limit for the registration of the broker with the name server, in seconds."""

_NAME_SERVER_PART = 4
"""Divisor of the process's limit of file descriptors: the name server may use one quarter of them."""

PORT = click.IntRange(0, 65_535)


def data_folder(value: str) -> Path:
    """Convert an option to the path of a directory that exists or can be created. A shell does not expand the ``~`` of
    ``--data-dir=~/data``.
    """
    if not value:
        raise click.BadParameter("the path is empty")
    try:
        folder = Path(file_path(value))
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not usable: expected {error}") from None
    for each in (folder, *folder.parents):
        if os.path.exists(each) and not os.path.isdir(each):
            below = "" if each == folder else f", cannot create {folder}"
            raise click.BadParameter(f"{each} is not a directory{below}")
    return folder


OWN_CREDENTIALS = "innerClientAuthenticationCredentials"
_OWN_CREDENTIALS_KEYS = {OWN_CREDENTIALS, "innerClientCredentialsPath"}

_ACCESS_KEYS = ACCESS_KEYS - {"authConfigPath", "authenticationWhitelist", "authorizationWhitelist"}
"""Settings of access control that apply to broker and name server. The white lists apply only to the broker."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command-line options."""

    data_dir: Path
    host: str
    namesrv_port: int
    broker_port: int
    metrics_port: int

    def name_server_config(self, pairs: dict[str, str]) -> NameServerConfig:
        """Return the settings of the name server: the command-line options, and the settings of TLS and access control
        in the settings file.

        Access control is disabled if the broker has no credentials to sign its registration. The files of the name
        server are in the folder ``namesrv`` of the data directory.
        """
        folder = self.data_dir / "namesrv"
        keys = TLS_KEYS | _ACCESS_KEYS if _OWN_CREDENTIALS_KEYS & pairs.keys() else TLS_KEYS
        return NameServerConfig.from_pairs(
            {key: value for key, value in pairs.items() if key in keys}
            | {
                "authConfigPath": str(folder / "auth"),
                "bindAddress": self.host,
                "listenPort": str(self.namesrv_port),
                "kvConfigPath": str(folder / "kvConfig.json"),
                "configStorePath": str(folder / "namesrv.properties"),
            }
        )

    def broker_config(self, pairs: dict[str, str], name_server: str, path: Path | None = None) -> BrokerConfig:
        """Return the settings of the broker. The settings file overrides the defaults, the command line both."""
        wanted = {
            "bindAddress": self.host,
            "listenPort": str(self.broker_port),
            "metricsHost": self.host,
            "metricsPort": str(self.metrics_port),
            "namesrvAddr": name_server,
            "storePathRootDir": str(self.data_dir),
        }
        advertised = {} if self.host in WILDCARDS else {"brokerIP1": self.host}
        return BrokerConfig.from_pairs(DEFAULTS | advertised | pairs | wanted, path)


def own_credentials(security: AccessControl) -> dict[str, str]:
    """Return the setting with the credentials of the broker's registration, by default those of the first user."""
    if security.own_credentials_path:
        return {}  # the settings contain the credentials
    user = security.own_credentials or security.first_user
    if user is None:
        if security.is_on:
            logger.warning("the name server accepts unsigned requests, because the broker has no %s", OWN_CREDENTIALS)
        return {}
    return {OWN_CREDENTIALS: json.dumps({"accessKey": user.access_key, "secretKey": user.secret_key})}


@click.command(
    epilog="""\b
Examples:
  raptormq dev
  raptormq dev --data-dir /tmp/raptormq --namesrv-port 0 --broker-port 0 --metrics-port 0
  raptormq dev -c broker.conf --log-level info
  raptormq dev --members 3 --data-dir /tmp/group"""
)
@click.option(
    "--data-dir",
    type=data_folder,
    default="raptormq-data",
    show_default=True,
    metavar="PATH",
    help="Data directory.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listening address.")
@click.option("--namesrv-port", type=PORT, default=9876, show_default=True, help="Port of the name server; 0: any.")
@click.option("--broker-port", type=PORT, default=10_911, show_default=True, help="Port of the broker; 0: any.")
@click.option(
    "--metrics-port",
    type=click.IntRange(-1, 65_535),
    default=5_557,
    show_default=True,
    help="Port of /metrics; 0: any, -1: none.",
)
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path), help="More broker settings.")
@click.option(
    "--members",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    help="Members of a Dledger group: 3 or 5 broker processes, each with a copy of the log.",
)
@log_level_option("warning")
def dev(
    data_dir: Path,
    host: str,
    namesrv_port: int,
    broker_port: int,
    metrics_port: int,
    config_file: Path | None,
    members: int,
    log_level: str,
) -> None:
    """Run a name server and a broker in one process until SIGTERM or SIGINT.

    The first message of a topic creates the topic. When the broker is ready, the command writes one line to standard
    output, which starts with 'ready' and contains the addresses. The log is written to standard error.

    With --members 3 the command runs three broker processes with replication. The line then also contains the leader
    and the process ids. A killed member is restarted after some seconds, and each new leader is reported on standard
    error.
    """
    configure_logging(log_level)
    if members % 2 == 0:
        raise click.BadParameter(f"{members} is even: expected 1, 3 or 5", param_hint="'--members'")
    options = Options(data_dir, host, namesrv_port, broker_port, metrics_port)
    pairs = read_properties(config_file) if config_file is not None else {}
    config = options.broker_config(pairs, "127.0.0.1:9876")  # report invalid settings before the start
    pairs |= own_credentials(config.security)
    for warning in start_warnings(config):
        logger.warning("%s", warning)
    if members > 1:
        group = GroupOptions(data_dir, host, broker_port, metrics_port, members, log_level)
        serve(lambda: _serving_group(options, group, pairs))
    else:
        serve(lambda: _serving(options, pairs, config_file))


@asynccontextmanager
async def _serving(options: Options, pairs: dict[str, str], path: Path | None) -> AsyncIterator[Addresses]:
    limit = descriptor_limit()
    name_server = NameServer(options.name_server_config(pairs), descriptors=limit // _NAME_SERVER_PART)
    async with running(name_server):
        reachable = f"{WILDCARDS.get(options.host, options.host)}:{name_server.port}"
        broker = Broker(options.broker_config(pairs, reachable, path), descriptors=limit - limit // _NAME_SERVER_PART)
        async with running(broker):
            await _registered(name_server, broker)
            yield {"namesrv": name_server.address} | addresses_of(broker)


@asynccontextmanager
async def _serving_group(options: Options, group: GroupOptions, pairs: dict[str, str]) -> AsyncIterator[Addresses]:
    name_server = NameServer(options.name_server_config(pairs))
    async with running(name_server):
        reachable = f"{WILDCARDS.get(options.host, options.host)}:{name_server.port}"
        async with running_group(group, DEFAULTS | pairs | {"namesrvAddr": reachable}, name_server) as addresses:
            yield {"namesrv": name_server.address} | addresses


async def _registered(name_server: NameServer, broker: Broker) -> None:
    try:
        async with asyncio.timeout(REGISTRATION_TIMEOUT_S):
            await name_server.wait_for_broker(broker.address)
    except TimeoutError:
        text = f"the broker at {broker.address} could not register with the name server at {name_server.address}"
        raise CommandFailed(f"{text}; see the log with --log-level info") from None
