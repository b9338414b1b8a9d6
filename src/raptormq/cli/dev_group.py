"""Runs the members of a Dledger group as child processes of ``raptormq dev --members 3``, to demonstrate failover.

Each member is a process ``raptormq broker`` with a settings file (``n0.conf``), a store (``n0``) and a log file
(``n0.log``) in the data directory. A member that exits is restarted after :data:`RESTART_S`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from raptormq.cli.exit_codes import CommandFailed
from raptormq.config_file import format_properties
from raptormq.files import DiskFiles, make_durable_folder
from raptormq.namesrv.service import NameServer

RESTART_S = 5.0
START_TIMEOUT_S = 60.0
STOP_S = 3.0
_PROGRAM = "from raptormq.cli.main import main; main()"
_PORT_STEP, _GROUP_PORT = 10, 5
"""Difference between the ports of two members, and between the listening port and the replication port of a member."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Command-line options for the members."""

    data_dir: Path
    host: str
    broker_port: int
    metrics_port: int
    members: int
    log_level: str


class MemberProcess:
    """One member and its process."""

    def __init__(self, member: str, address: str, conf: Path, log_level: str) -> None:
        self.id = member
        self.address = address
        self._conf = conf
        self._log_level = log_level
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def process_id(self) -> int | None:
        """Process id, or None if the member is not running."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process and wait until the member is ready.

        Raises:
            CommandFailed: the process exits before the member is ready.
        """
        with self._conf.with_suffix(".log").open("ab") as log:
            command = (sys.executable, "-c", _PROGRAM, "broker", "-c", str(self._conf))
            self._process = await asyncio.create_subprocess_exec(
                *command, "--log-level", self._log_level,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        ready = await self._process.stdout.readline()
        if not ready.startswith(b"ready"):
            await self._process.wait()
            raise CommandFailed(f"member {self.id} did not start; see {self._conf.with_suffix('.log')}")

    async def keep_running(self) -> None:
        """Restart the process each time it exits."""
        while True:
            assert self._process is not None
            code = await self._process.wait()
            self._process = None
            click.echo(f"member {self.id} exited with code {code}; restarting in {RESTART_S:g} s", err=True)
            await asyncio.sleep(RESTART_S)
            with suppress(CommandFailed):
                await self.start()

    async def stop(self) -> None:
        """Stop the process with SIGTERM, and with SIGKILL after :data:`STOP_S`."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@asynccontextmanager
async def running_group(
    options: GroupOptions, pairs: Mapping[str, str], name_server: NameServer
) -> AsyncIterator[dict[str, str]]:
    """Run the members during the block. Yields the entries of the ready line, the leader last.

    Raises:
        CommandFailed: a member does not start, or no leader is elected in time.
    """
    members = _prepare(options, pairs)
    broker_name = pairs["brokerName"]
    tasks: list[asyncio.Task[None]] = []
    try:
        await asyncio.gather(*(member.start() for member in members))
        leader = await _first_leader(name_server, broker_name)
        tasks = [asyncio.ensure_future(member.keep_running()) for member in members]
        tasks.append(asyncio.ensure_future(_report_leaders(members, name_server, broker_name, leader)))
        facts = {member.id: member.address for member in members}
        facts |= {f"pid-{member.id}": str(member.process_id) for member in members}
        yield {**facts, "leader": _name_of(members, leader)}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(member.stop() for member in members))


async def _first_leader(name_server: NameServer, broker_name: str) -> str:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            return await name_server.wait_for_master(broker_name)
    except TimeoutError:
        text = f"no leader was elected within {START_TIMEOUT_S:g} s; see the logs of the members"
        raise CommandFailed(text) from None


async def _report_leaders(members: list[MemberProcess], name_server: NameServer, broker_name: str, leader: str) -> None:
    while True:
        leader = await name_server.wait_for_master(broker_name, other_than=leader)
        click.echo(f"leader={_name_of(members, leader)}", err=True)


def _name_of(members: list[MemberProcess], address: str) -> str:
    return next((member.id for member in members if member.address == address), address)


def _prepare(options: GroupOptions, pairs: Mapping[str, str]) -> list[MemberProcess]:
    """Write the settings files of the members, and return the members."""
    folder = options.data_dir.absolute()
    make_durable_folder(DiskFiles(), str(folder))
    host = "127.0.0.1" if options.host in ("", "0.0.0.0", "::") else options.host
    ports, group_ports = _ports(options)
    peers = ";".join(f"n{number}-{host}:{port}" for number, port in enumerate(group_ports))
    members = []
    for number, port in enumerate(ports):
        member = f"n{number}"
        settings = {
            **pairs,
            "bindAddress": options.host,
            "brokerIP1": pairs.get("brokerIP1", host),
            "listenPort": str(port),
            "metricsHost": options.host,
            "metricsPort": str(options.metrics_port + number if options.metrics_port > 0 else options.metrics_port),
            "storePathRootDir": str(folder / member),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": pairs["brokerName"],
            "dLegerPeers": peers,
            "dLegerSelfId": member,
        }
        conf = folder / f"{member}.conf"
        conf.touch(mode=0o600)
        conf.write_text(format_properties(settings), encoding="utf-8")
        members.append(MemberProcess(member, f"{settings['brokerIP1']}:{port}", conf, options.log_level))
    return members


def _ports(options: GroupOptions) -> tuple[list[int], list[int]]:
    """Return the listening ports and the replication ports of the members."""
    if options.broker_port:
        ports = [options.broker_port + _PORT_STEP * number for number in range(options.members)]
        return ports, [port + _GROUP_PORT for port in ports]
    with ExitStack() as reserved:
        found = []
        for _ in range(2 * options.members):
            each = reserved.enter_context(socket.socket())
            each.bind(("127.0.0.1", 0))
            found.append(int(each.getsockname()[1]))
    return found[: options.members], found[options.members :]
