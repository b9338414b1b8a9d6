"""One broker's part in its group: the member, its connections, its tables, and what runs only while it leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

from raptormq.broker.config import BrokerConfig
from raptormq.broker.replication.group_member import GroupMember, Listeners
from raptormq.broker.replication.links import Inbox, Links, Refusal
from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.broker.replication.table_records import TABLES_TOPIC, TableRecords
from raptormq.errors import NotLeader, RaptorMQError, StorageError
from raptormq.files import Files
from raptormq.logs import get_logger
from raptormq.raft import Options, ProposalRefused, Status, TransferLeadership
from raptormq.storage import MessageStore
from raptormq.transport.pool import parse_address
from raptormq.transport.server import Server
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

_TICKS_PER_HEARTBEAT = 4
_HAND_OVER_S = 1.0
MASTER_ID = 0


def files_of_member(config: BrokerConfig, filesystem: Files | None) -> MemberFiles:
    """Return the files of the member in the store of a broker."""
    return MemberFiles(Path(config.storage.root_dir) / "config", filesystem)


@dataclass(frozen=True, slots=True)
class LeaderWork:
    """What a broker does while it leads, and how it says so."""

    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]
    register: Callable[[int], None]
    """Registers under this broker id from now on."""


class Replication:
    """The member of a group that a broker is; the store is open."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        files: MemberFiles,
        tables: TableRecords,
        refusal: Refusal,
    ) -> None:
        """``refusal`` is the access control of the group's port.

        Raises:
            ConfigError: a file for TLS cannot be used.
        """
        settings = config.replication
        assert store.replica is not None
        self._config = config
        self._store = store
        self.tables = tables
        self._threads = ThreadPoolExecutor(2, "replication")
        addresses = settings.addresses
        self._address = addresses[settings.self_id]
        others = {member: address for member, address in addresses.items() if member != settings.self_id}
        self._links = Links(
            settings.group, others, store.replica, self._in_thread, config.security.own_credentials, config.outgoing_tls
        )
        options = Options(
            peers=addresses,
            heartbeat_ms=settings.heartbeat_ms,
            election_ms=settings.election_ms,
            sync_flush=config.storage.flush_disk_type == "SYNC_FLUSH",
            preferred_leader=settings.preferred_leader,
        )
        self.member = GroupMember(
            settings.self_id, options, store, files, self._links, _monotonic_ms, SystemRandom(), self._in_thread
        )
        self.inbox = Inbox(settings.self_id, settings.group, others, self.member.step, refusal)
        self._server: Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = settings.heartbeat_ms / 1000 / _TICKS_PER_HEARTBEAT
        self._work: LeaderWork | None = None
        self._role_changed = asyncio.Event()
        self._follows = asyncio.Event()
        self._roles: asyncio.Task[None] | None = None

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def start(self, progress: Progress, work: LeaderWork, *, clean: bool) -> None:
        """Join the group; ``progress`` is what was known when the store was opened, ``clean`` that it was closed well.

        Raises:
            ConfigError: the port of the group is in use.
            StorageError: the files of the member cannot be read.
        """
        config = self._config
        self._work = work
        await self.tables.catch_up(progress.tables_offset)
        replica = self._store.replica
        assert replica is not None
        replica.own_topic = TABLES_TOPIC
        replica.attach(self.tables)
        self.member.tables_offset = lambda: self.tables.kept_offset
        self.member.listeners = Listeners(self._leading, self._following)
        try:
            self.member.start(progress, clean=clean)
        except ValueError as error:
            raise StorageError(f"this broker's part of its group does not fit together: {error}") from error
        self._server = Server(
            self.inbox, config.network.bind_address, parse_address(self._address)[1], None, config.tls
        )
        await self._server.start()
        self._roles = asyncio.get_running_loop().create_task(self._follow_role())
        self._tick()

    async def stop_leading(self) -> None:
        """Hand leadership over, if another member can take it at once, and stop what only a leader does."""
        status = self.member.status()
        if status is not None and self.member.leads:
            ready = [other for other in status.members if other.active and other.suffrage == "voter"]
            if ready:
                try:
                    self.member.propose(TransferLeadership(max(ready, key=lambda other: other.matched).id))
                except ProposalRefused as error:
                    logger.info("leadership is not handed over: %s", error)
                await wait_event(self._follows, _HAND_OVER_S)
        if self._roles is not None:
            self._roles.cancel()
            await asyncio.gather(self._roles, return_exceptions=True)

    async def stop(self) -> None:
        """Leave; the store is closed afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.member.stop()
        await self._links.close()
        if self._server is not None:
            await self._server.stop(0.2)
        self._threads.shutdown(wait=False)

    def status(self) -> Status | None:
        """Return the member's view of the group; None while it does not run."""
        return self.member.status()

    def facts(self) -> dict[str, str]:
        """Return what tools are told about the group: the role, the term, the leader, how far each member is.

        ``dledgerMember_n1`` is ``voter, disk 3f2a, 0 bytes behind, heard 12 ms ago``; only the leader knows the others.
        """
        status = self.member.status()
        if status is None:
            return {"dledgerRole": "stopped", "dledgerReason": self.member.halted or "the disk failed; it begins again"}
        facts = {
            "dledgerCommittedOffset": str(status.committed.offset),
            "dledgerDisk": f"{status.incarnation:x}",
            "dledgerGroup": self._config.replication.group,
            "dledgerLeader": status.leader,
            "dledgerRole": str(status.role),
            "dledgerSelfId": status.id,
            "dledgerTerm": str(status.term),
            "dledgerVoters": ",".join(status.configuration.voters()),
            "dledgerRefusedFrames": str(self.inbox.refused.total()),
        }
        for other in status.members:
            behind = status.end.offset - other.matched.offset
            facts[f"dledgerMember_{other.id}"] = (
                f"{other.suffrage}, disk {other.incarnation:x}, {behind} bytes behind, heard {other.silent_ms} ms ago"
            )
        if status.conflict:
            facts["dledgerConflict"] = status.conflict
        return facts

    def connections(self) -> dict[str, Any]:
        """Return what ``mqadmin haStatus`` shows: whether this member leads and, if so, how far the others are."""
        status = self.member.status()
        members = status.members if status is not None else ()
        addresses = self._config.replication.addresses
        infos = [
            {
                "addr": addresses.get(other.id, other.id),
                "diff": status.end.offset - other.matched.offset if status is not None else 0,
                "inSync": other.active and other.suffrage == "voter",
                "slaveAckOffset": other.matched.offset,
                "transferFromWhere": other.matched.offset,
                "transferredByteInSecond": 0,
            }
            for other in members
        ]
        return {
            "haConnectionInfo": infos,
            "inSyncSlaveNums": sum(bool(info["inSync"]) for info in infos),
            "master": self.member.leads,
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the figures for Prometheus: help text and value by name."""
        status = self.member.status()
        figures = {
            "replication_running": ("1 while this member of its group runs", float(status is not None)),
            "replication_leads": ("1 while this member leads its group", float(self.member.leads)),
            "replication_refused_frames_total": (
                "Messages refused on the port of the group: of another group, malformed or not signed",
                float(self.inbox.refused.total()),
            ),
        }
        if status is not None:
            behind = [status.end.offset - other.matched.offset for other in status.members]
            figures |= {
                "replication_term": ("The term of the group", float(status.term)),
                "replication_elections_total": ("Elections that this member has won", float(status.elections)),
                "replication_committed_bytes": ("End of what the group has confirmed", float(status.committed.offset)),
                "replication_lag_bytes": (
                    "How far the slowest member is behind, known to the leader alone",
                    float(max(behind, default=0)),
                ),
                "replication_voters": ("Members that vote", float(len(status.configuration.voters()))),
            }
        return figures

    def not_leader(self) -> NotLeader | None:
        """Return why a request for a leader is refused; None while this member leads."""
        return None if self.member.leads else self.member.not_leader()

    # --- time and roles ---

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        self.member.tick()
        self.tables.tick()

    def _leading(self) -> None:
        assert self._work is not None
        try:
            self.tables.lead()
        except StorageError as error:  # a full disk: it is tried again with the next change
            logger.error("the tables cannot be appended to the log: %s", error)
        self._follows.clear()
        self._work.register(MASTER_ID)
        self._role_changed.set()

    def _following(self) -> None:
        assert self._work is not None
        self.tables.follow()
        self._follows.set()
        self._work.register(self._config.replication.broker_id)
        self._role_changed.set()

    async def _follow_role(self) -> None:
        """Start and stop what only a leader runs, one after the other."""
        assert self._work is not None
        runs = False
        try:
            while True:
                await self._role_changed.wait()
                self._role_changed.clear()
                if self.member.leads is not runs:
                    runs = self.member.leads
                    await self._logged(self._work.start if runs else self._work.stop)
        finally:
            if runs:
                await self._logged(self._work.stop)

    async def _logged(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except (OSError, RaptorMQError) as error:
            logger.error("a service of the leader: %s", error)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
