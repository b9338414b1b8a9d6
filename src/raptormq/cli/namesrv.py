"""``raptormq namesrv``: runs a name server in the foreground."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from raptormq.cli.serving import Addresses, log_level_option, running, serve
from raptormq.logs import configure_logging, get_logger
from raptormq.namesrv.config import NameServerConfig, load_name_server_config
from raptormq.namesrv.service import NameServer

logger = get_logger(__name__)


@click.command(
    epilog="""\b
Examples:
  raptormq namesrv
  raptormq namesrv -c namesrv.conf --log-level debug"""
)
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path), help="Settings (RocketMQ keys).")
@click.option("--metrics-port", type=click.IntRange(-1, 65_535), help="Port of /metrics, /healthz, /readyz; -1: none.")
@log_level_option("info")
def namesrv(config_file: Path | None, metrics_port: int | None, log_level: str) -> None:
    """Run a name server until SIGTERM or SIGINT.

    When the name server is ready, it writes one line to standard output, which starts with 'ready' and contains the
    addresses. The log is written to standard error.
    """
    configure_logging(log_level)
    overrides = {"metricsPort": str(metrics_port)} if metrics_port is not None else {}
    config, warnings = load_name_server_config(config_file, overrides)
    for warning in warnings:
        logger.warning("%s", warning)
    serve(lambda: _serving(config))


@asynccontextmanager
async def _serving(config: NameServerConfig) -> AsyncIterator[Addresses]:
    server = NameServer(config)
    async with running(server):
        metrics = {"metrics": server.metrics_address} if server.metrics_address is not None else {}
        yield {"namesrv": server.address} | metrics
