"""``raptormq broker``: runs one broker in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from raptormq.broker.broker import Broker
from raptormq.broker.config import BrokerConfig, load_broker_config
from raptormq.cli.serving import Addresses, log_level_option, running, serve
from raptormq.logs import configure_logging, get_logger

logger = get_logger(__name__)


@click.command(
    epilog="""\b
Examples:
  raptormq broker -n 127.0.0.1:9876
  NAMESRV_ADDR='ns-0:9876;ns-1:9876' raptormq broker -c broker.conf --metrics-port 5557"""
)
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path), help="Settings (RocketMQ keys).")
@click.option(
    "-n",
    "--namesrv",
    "name_servers",
    metavar="HOST:PORT[;HOST:PORT]",
    help="Name servers to register with (default: from the settings or NAMESRV_ADDR).",
)
@click.option("--metrics-port", type=click.IntRange(-1, 65_535), help="Port of /metrics, /healthz, /readyz; -1: none.")
@log_level_option("info")
def broker(config_file: Path | None, name_servers: str | None, metrics_port: int | None, log_level: str) -> None:
    """Run a broker until SIGTERM or SIGINT.

    When the broker is ready, it writes one line to standard output, which starts with 'ready' and contains the
    addresses. The log is written to standard error.
    """
    configure_logging(log_level)
    overrides: dict[str, str] = {}
    if name_servers is not None:
        overrides["namesrvAddr"] = name_servers
    if metrics_port is not None:
        overrides["metricsPort"] = str(metrics_port)
    config, warnings = load_broker_config(config_file, overrides)
    for warning in warnings:
        logger.warning("%s", warning)
    serve(lambda: _serving(config))


def addresses_of(server: Broker) -> Addresses:
    """Return the addresses of a running broker."""
    addresses = {"broker": server.address}
    if server.metrics_port is not None:
        addresses["metrics"] = f"{server.config.network.metrics_host}:{server.metrics_port}"
    return addresses


class _Restarting:
    """Runs a broker, and replaces it by a new one when it requests a restart. Implements Startable."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.broker = Broker(config)
        self._runs = False
        self._watching: asyncio.Task[None] | None = None
        self._replacing: asyncio.Task[None] | None = None
        """The last restart."""

    async def start(self) -> None:
        """Start the first broker."""
        await self.broker.start()
        self._runs = True
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        try:
            while True:
                await self.broker.wait_restart_wanted()
                self._replacing = asyncio.get_running_loop().create_task(self._replace())
                await asyncio.shield(self._replacing)
        except Exception:
            os.kill(os.getpid(), signal.SIGTERM)  # ends the process; `stop` raises the error
            raise

    async def _replace(self) -> None:
        self._runs = False
        await self.broker.stop()
        self.broker = Broker(self._config)
        await self.broker.start()
        self._runs = True

    async def stop(self) -> None:
        """Stop the current broker. A restart that has begun is completed first: its store must be closed.

        Raises:
            Exception: a restart failed, or the broker cannot be stopped.
        """
        if self._watching is not None:
            self._watching.cancel()
            outcomes = await asyncio.gather(self._watching, *filter(None, [self._replacing]), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
        if self._runs:
            await self.broker.stop()


@asynccontextmanager
async def _serving(config: BrokerConfig) -> AsyncIterator[Addresses]:
    server = _Restarting(config)
    async with running(server):
        await server.broker.registered()  # the reader of the ready line may query a name server immediately
        yield addresses_of(server.broker)
