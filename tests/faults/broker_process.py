"""Server processes that tests kill or observe from outside, and requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from raptormq.config_file import format_properties
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import RequestHandler
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import SMALL

RAPTORMQ = str(Path(sys.executable).with_name("raptormq"))


@asynccontextmanager
async def process(
    tmp_path: Path,
    port: int,
    settings: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    level: str = "warning",
    descriptors: int | None = None,
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a broker process that serves. It is killed at the end of the block if it still runs. ``log`` receives its
    warnings, or more with another ``level``. ``descriptors`` limits its open files.
    """
    config = tmp_path / "broker.conf"
    pairs = SMALL | {
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": "1M",
        "listenPort": str(port),
    }
    pairs |= settings or {}
    config.write_text(format_properties(pairs), encoding="utf-8")
    command = ["broker", "-c", str(config), "--log-level", "error" if log is None else level]
    async with serving(command, environment=environment, log=log, descriptors=descriptors) as server:
        yield server


@asynccontextmanager
async def serving(
    command: list[str],
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    descriptors: int | None = None,
    enter: Sequence[str] = (),
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a server of the command line until it is ready, like :func:`process`. ``enter`` is a command that executes
    another command in its place, such as ``ip netns exec NAME``.
    """
    limited = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"]
    with contextlib.ExitStack() as opened:
        errors = None if log is None else opened.enter_context(log.open("ab"))
        variables = None if environment is None else os.environ | dict(environment)
        server = opened.enter_context(
            subprocess.Popen(
                [*enter, *limited, RAPTORMQ, *command], stdout=subprocess.PIPE, stderr=errors, env=variables
            )
        )
        try:
            assert server.stdout is not None
            ready = await asyncio.to_thread(server.stdout.readline)
            assert ready.startswith(b"ready"), ready
            yield server
        finally:
            server.kill()


class Client:
    """Requests over a pool that reconnects."""

    def __init__(self, port: int, handler: RequestHandler | None = None) -> None:
        """``handler`` handles requests of the broker. Without it they are refused."""
        self._pool = ConnectionPool(handler)
        self._address = f"127.0.0.1:{port}"

    async def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand(code, {name: str(value) for name, value in fields.items()}, body)
        return await self._pool.request(self._address, command, 10)

    async def close(self) -> None:
        await self._pool.close()
