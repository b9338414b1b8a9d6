"""Replication of one broker: its group member, the connections, the replicated tables, and the services of a leader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from raptormq.broker.config import BrokerConfig
from raptormq.broker.replication.copied_ranges import CopiedRanges
from raptormq.broker.replication.copy_comparison import CopyComparison
from raptormq.broker.replication.fixed_settings import FixedSettings
from raptormq.broker.replication.forwarding import Forwarding
from raptormq.broker.replication.group_member import GroupMember, Listeners
from raptormq.broker.replication.leader_port import LeaderPort, Ports
from raptormq.broker.replication.links import Inbox, Links, LogRange, Refusal
from raptormq.broker.replication.log_history import LogHistory
from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.broker.replication.refused_range import RefusedRange
from raptormq.broker.replication.renewal import Grants, Renewal
from raptormq.broker.replication.status import MODE, LagTimes, has_caught_up, may_restart, state_of
from raptormq.broker.replication.table_records import TableRecords
from raptormq.broker.roles import LeaderWork
from raptormq.errors import NotLeader, NoValidCopy, RaptorMQError, StorageError
from raptormq.files import Files
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import ReplicationState, Verdict
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.signing import Credentials, CredentialSource
from raptormq.protocol.topic_names import TABLES_TOPIC
from raptormq.raft import (
    AddMember,
    LacksData,
    Member,
    MemberStatus,
    Options,
    PromoteMember,
    Proposal,
    ProposalRefused,
    RemoveMember,
    Status,
    Suffrage,
    TransferLeadership,
)
from raptormq.storage import MessageStore
from raptormq.transport.pool import parse_address
from raptormq.transport.router import Refused
from raptormq.transport.server import Server, ServerLimits
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

_TICKS_PER_HEARTBEAT = 4
_HAND_OVER_S = 1.0
_TRANSFER_S = 2.0
"""Maximum time in seconds to wait for a transfer of leadership. Clients wait 3 s for a response."""
_ASK_LEADER_S = 2.0
_ALMOST_ALL_BYTES = 1 << 20
"""Maximum lag of the preferred leader at which leadership is transferred to it."""
_MOVES_APART_ELECTIONS = 10
"""Number of election timeouts between two attempts to transfer leadership to the preferred leader."""
_LEAST_UNACKNOWLEDGED_MS = 2_000
_CONFIRM_LEADERSHIP_S = 1.0
_RETRY_S = 1.0
"""Pause in seconds before the services of the leader are started again after a failure."""
_LIMITS = ServerLimits(max_connections=128, max_unfinished_bytes=64 << 20)
"""Limits of the group's port. Each member needs two connections. A higher limit could exhaust the file descriptors."""


def files_of_member(config: BrokerConfig, filesystem: Files | None) -> MemberFiles:
    """Return the member files in the store directory of a broker."""
    return MemberFiles(Path(config.storage.root_dir) / "config", filesystem)


class Replication:
    """Runs one broker as a member of a Dledger group. The store must be open."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        files: MemberFiles,
        tables: TableRecords,
        refusal: Refusal,
        address: str,
        credentials: Credentials | CredentialSource | None,
        apply_settings: Callable[[], None],
    ) -> None:
        """Create the member.

        Args:
            config: settings of the broker.
            store: the open store.
            files: the member files.
            tables: the replicated tables.
            refusal: access control of the group's port.
            address: address of the broker for clients.
            credentials: sign messages to other members if given.
            apply_settings: creates the missing topics and users of the settings. It is called after each adoption of
                tables that a leader with other settings may have written: after the start, and before this member
                writes its tables as the leader.

        Raises:
            ConfigError: a file for TLS cannot be used.
        """
        settings = config.replication
        assert store.replica is not None
        self._config = config
        self._store = store
        self.tables = tables
        self._apply_settings = apply_settings
        self._threads = ThreadPoolExecutor(2, "replication")
        addresses = settings.addresses
        self._address = addresses[settings.self_id]
        others = {member: address for member, address in addresses.items() if member != settings.self_id}
        fixed = FixedSettings(store.replica.segment_size)
        self._links = Links(
            settings.group,
            others,
            store.replica,
            self._in_thread,
            credentials,
            config.outgoing_tls,
            max(_LEAST_UNACKNOWLEDGED_MS, 2 * settings.election_ms),
            self._process_ended,
            self._suspect,
            fixed,
        )
        options = Options(
            peers=addresses,
            heartbeat_ms=settings.heartbeat_ms,
            election_ms=settings.election_ms,
            sync_flush=config.storage.flush_disk_type == "SYNC_FLUSH",
            shortened_wait_ms=settings.shortened_wait_ms,
        )  # without the preferred leader: _move_to_preferred flushes the tables before it transfers leadership
        self.member = GroupMember(
            settings.self_id, options, store, files, self._links, _monotonic_ms, SystemRandom(), self._in_thread
        )
        self.copies = CopyComparison(self.member, self._links, store, self._in_thread, self._suspect, self._is_valid)
        self._renewal = Renewal(
            self.member,
            lambda leader, stored: self._links.may_renew(leader, settings.self_id, stored),
            store.has_room_for,
            _monotonic_ms,
            settings.shortened_renewal_ms,
        )
        self._grants = Grants()
        self.wants_restart = asyncio.Event()
        """Set when the broker must restart, because its store has to be emptied."""
        self._suspect_damage: Callable[[int, int], None] = lambda _offset, _size: None
        self._inquiry: asyncio.Task[None] | None = None
        """Requests a refused range from the leader."""
        self._valid_copy = ""
        """Id of the member that has last sent valid records for a repair."""
        self._next_move_ms = 0
        self._moving: asyncio.Task[None] | None = None
        """Transfers leadership to the preferred leader."""
        self._transfers = asyncio.Lock()
        self._lags = LagTimes()
        self._client_address = address
        self._forwarding: Forwarding | None = None
        self._leader_port: LeaderPort | None = None
        self.inbox = Inbox(settings.self_id, settings.group, others, self.member.receive, refusal, self, fixed)
        self.member.difference = lambda: self.inbox.difference
        self._server: Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = settings.heartbeat_ms / 1000 / _TICKS_PER_HEARTBEAT
        self._work: LeaderWork | None = None
        self._role_changed = asyncio.Event()
        self._leaderships = 0
        """Number of terms in which this member has led since its start."""
        self._follows = asyncio.Event()
        self._roles: asyncio.Task[None] | None = None

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def attach_forwarding(self, forwarding: Forwarding) -> None:
        """Forward sends to the next leader after a transfer of leadership."""
        self._forwarding = forwarding

    def attach_scrub(self, suspect: Callable[[int, int], None], differs: Callable[[int, int], None]) -> None:
        """Call ``suspect`` with offset and size of a range of the log that may be damaged, and ``differs`` with begin
        and end of one whose copies differ.
        """
        self._suspect_damage = suspect
        self.copies.suspect = differs

    def _suspect(self, offset: int, size: int) -> None:
        self._suspect_damage(offset, size)

    def attach_leader_port(self, port: LeaderPort) -> None:
        """Serve clients on a separate port while this member leads."""
        self._leader_port = port

    async def ask(self, member: str, restarting: str, seconds: float) -> ReplicationState:
        """Request the status of the group from another member. See :meth:`Links.describe`."""
        return await self._links.describe(member, restarting, seconds)

    def may_renew(self, member: str, stored: int | None) -> Verdict:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        return self._grants.answer(self.member.status(), member, stored, _monotonic_ms())

    async def history(self) -> LogHistory:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        return await self.member.history()

    async def read_range(self, begin: int, limit: int, most: int) -> bytes:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        return await self.copies.read_range(begin, limit, most)

    async def digest(self, place: LogRange, digest: str) -> str:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        return await self.copies.digest(place, digest)

    def copied(self, place: LogRange, size: int) -> CopiedRanges | None:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        return self.copies.copied(place, size)

    def _range_refused(self, refused: RefusedRange) -> None:
        if self._inquiry is None or self._inquiry.done():
            self._inquiry = asyncio.get_running_loop().create_task(self._inquire(refused))

    async def _inquire(self, refused: RefusedRange) -> None:
        """Request the refused records from the leader, which then checks its copy."""
        try:
            await self._links.read_range(refused.leader, refused.begin, refused.end)
            is_new = refused.answered(None)
        except RaptorMQError as error:
            is_new = refused.answered(error)
        if is_new:
            logger.error("member %s: %s", self.member.id, refused.text)

    async def fetch(self, begin: int, limit: int) -> bytes:
        """Return records of the log from another member, the leader first. See :meth:`Links.read_range`.

        Raises:
            NoValidCopy: no other member has them; all have responded.
            StorageError: no other member has sent them.
        """
        failures, all_lack = [], True
        others = [member for member in self._config.replication.addresses if member != self.member.id]
        for member in sorted(others, key=lambda member: member != self.member.leader):
            try:
                data = await self._links.read_range(member, begin, limit)
                await self.member.note_copied(begin, begin + len(data))
                self._is_valid(member)
                return data
            except RaptorMQError as error:
                failures.append(f"{member}: {error}")
                all_lack = all_lack and isinstance(error, NoValidCopy)
        kind = NoValidCopy if all_lack else StorageError
        raise kind(f"no other member has sent this part of the log: {'; '.join(failures)}")

    def _is_valid(self, member: str) -> None:
        self._valid_copy = member

    async def lead_elsewhere(self) -> None:
        """Transfer leadership to the member whose copy was valid where this disk cannot be repaired."""
        if self.member.leads:
            logger.warning("leadership is transferred to %s, whose copy of the log is valid", self._valid_copy)
            with suppress(ProposalRefused, StorageError):
                await self._hand_over(self._valid_copy, _TRANSFER_S)

    async def start(self, progress: Progress, work: LeaderWork, ports: Ports, *, clean: bool) -> None:
        """Join the group.

        Args:
            progress: the progress that was saved when the store was opened.
            work: the services of a leader.
            ports: serves clients.
            clean: whether the store was shut down cleanly.

        Raises:
            ConfigError: the port of the group is in use.
            StorageError: the files of the member cannot be read.
        """
        config = self._config
        self._work = work
        await self.tables.catch_up(progress.tables_offset)
        self._apply_settings()
        replica = self._store.replica
        assert replica is not None
        replica.metadata_topic = TABLES_TOPIC
        replica.attach(self.tables)
        self.member.tables_offset = lambda: self.tables.snapshot_offset
        self.member.listeners = Listeners(
            self._leading, self._following, self._handing_over, self.tables.log_shrunk, self._range_refused,
            self._suspect, self.wants_restart.set,
        )  # fmt: skip
        try:
            self.member.start(progress, clean=clean)
        except ValueError as error:
            raise StorageError(
                f"the commit log and config/dledger.json of this member contradict each other: {error}"
            ) from error
        self._server = Server(
            self.inbox, config.network.bind_address, parse_address(self._address)[1], _LIMITS, config.tls
        )
        await self._server.start()
        self._roles = asyncio.get_running_loop().create_task(self._follow_role())
        if self._leader_port is not None:
            self._leader_port.start(ports)
        self._tick()

    async def stop_leading(self) -> None:
        """Transfer leadership if another member is ready, and stop the services of a leader."""
        if self._moving is not None:
            self._moving.cancel()
        if self.member.leads:
            try:
                await self._hand_over(self._successor(), _HAND_OVER_S)
                await wait_event(self._follows, _HAND_OVER_S)
            except (ProposalRefused, StorageError) as error:
                logger.info("leadership is not transferred before the stop: %s", error)
        if self._leader_port is not None:
            await self._leader_port.stop()
        if self._roles is not None:
            self._roles.cancel()
            await asyncio.gather(self._roles, return_exceptions=True)

    async def transfer(self, to: str) -> None:
        """Transfer leadership to the member ``to``, or to the most advanced one if empty. Waits until it leads.

        Raises:
            NotLeader: this member does not lead, or no longer leads.
            Refused: the transfer is not possible, or did not complete within :data:`_TRANSFER_S`.
        """
        if (reason := self.not_leader()) is not None:
            raise reason
        with _refused_as_illegal():
            successor = to or self._successor()
            deadline = time.monotonic() + _TRANSFER_S
            await self._hand_over(successor, _TRANSFER_S)
            while self.member.leader != successor:
                if time.monotonic() >= deadline:
                    raise ProposalRefused(
                        f"member {successor} does not lead yet: check which member leads before you retry", to
                    )
                await asyncio.sleep(self._tick_s)

    async def _hand_over(self, to: str, seconds: float) -> None:
        """Begin a transfer of leadership, within ``seconds``.

        Every consumer offset whose commit was answered must reach the next leader. Requests are therefore held or
        refused first. The pops that wait for the confirmation of their checkpoints commit offsets, too. When the whole
        log is confirmed, the offsets are appended to it, in the same step in which the transfer begins.

        Raises:
            ProposalRefused: leadership cannot be transferred to that member, or the member lacks too much of the log.
            StorageError: this member no longer leads.
        """
        async with self._transfers:
            deadline = time.monotonic() + seconds
            while (behind := self._lag_of(to)) > _ALMOST_ALL_BYTES:
                if time.monotonic() >= deadline:
                    raise ProposalRefused(f"{to} lacks {behind} bytes of the log: try again when it has caught up", to)
                await asyncio.sleep(self._tick_s)
            self.member.prepares_transfer = True
            self._handing_over()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    while self._store.confirmed_offset < self._store.end_offset:
                        await self._store.wait_confirmed(self._store.end_offset)
                self.tables.flush()
                self.member.propose(TransferLeadership(to))
            except TimeoutError:
                raise ProposalRefused("a majority of the group does not have the whole log yet: try again") from None
            finally:
                self.member.prepares_transfer = False

    def _lag_of(self, member: str) -> int:
        """Return how many bytes of the log a member lacks; 0 if it is not known."""
        status = self.member.status()
        members = status.members if status is not None else ()
        return max((self._store.end_offset - each.matched.offset for each in members if each.id == member), default=0)

    def _move_to_preferred(self, now_ms: int) -> None:
        """Transfer leadership to the preferred leader once it has almost the whole log."""
        settings = self._config.replication
        if settings.preferred_leader in ("", settings.self_id) or now_ms < self._next_move_ms:
            return
        status = self.member.status()
        if status is None or not status.accepts_data:
            return
        for other in status.members:
            behind = status.end.offset - other.matched.offset
            if other.id == settings.preferred_leader and _can_lead(other) and behind <= _ALMOST_ALL_BYTES:
                self._next_move_ms = now_ms + _MOVES_APART_ELECTIONS * settings.election_ms
                if self._moving is None or self._moving.done():
                    self._moving = asyncio.get_running_loop().create_task(self._move(other.id))

    async def _move(self, to: str) -> None:
        with suppress(ProposalRefused, StorageError):
            await self._hand_over(to, _TRANSFER_S)

    async def change_members(self, action: str, member: str) -> None:
        """Change the members of the group. Waits until the change is committed.

        Under load a learner usually lacks the most recently committed records. Its promotion is retried until it has
        all of them.

        Args:
            action: see :mod:`raptormq.protocol.headers.replication`.
            member: id of the member.

        Raises:
            NotLeader: this member does not lead.
            Refused: the change is not possible, or was not made and committed within :data:`_TRANSFER_S`.
        """
        if (reason := self.not_leader()) is not None:
            raise reason
        with _refused_as_illegal():
            addresses = self._config.replication.addresses
            if member not in addresses and action != "remove":
                raise ProposalRefused(
                    f"{member!r:.80} is not in dLegerPeers: add it there on all members, "
                    "and restart them one by one first"
                )
            proposals: dict[str, Callable[[], Proposal]] = {
                "add": lambda: AddMember(member, Suffrage.JOINING, addresses[member]),
                "addLearner": lambda: AddMember(member, Suffrage.LEARNER, addresses[member]),
                "promote": lambda: PromoteMember(member),
                "remove": lambda: RemoveMember(member),
            }
            if action not in proposals:
                raise ProposalRefused(f"action {action!r:.80} is not one of {', '.join(proposals)}")
            known = self._member_named(member)
            if known is not None and action in ("add", "addLearner"):
                raise ProposalRefused(f"{member} is a member of the group already, as a {known.suffrage}")
            deadline = time.monotonic() + _TRANSFER_S
            while True:
                try:
                    end = self.member.propose(proposals[action]())
                    break
                except LacksData:
                    if time.monotonic() >= deadline:
                        raise
                    await asyncio.sleep(self._tick_s)
            while (status := self.member.status()) is None or end is None or status.committed < end:
                if time.monotonic() >= deadline or status is None:
                    raise ProposalRefused(
                        "the membership change is not committed yet: check the members before you retry"
                    )
                await asyncio.sleep(self._tick_s)

    def _member_named(self, member: str) -> Member | None:
        status = self.member.status()
        return status.configuration.get(member) if status is not None else None

    def _successor(self) -> str:
        """Return the voter with the longest log.

        Raises:
            ProposalRefused: no other voter is active and able to lead.
        """
        status = self.member.status()
        ready = [other for other in (status.members if status is not None else ()) if _can_lead(other)]
        if not ready:
            raise ProposalRefused("no other voter of the group is active and able to lead")
        return max(ready, key=lambda other: other.matched).id

    async def stop(self) -> None:
        """Stop the member. The store must still be open."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)
        if self._inquiry is not None:
            self._inquiry.cancel()
            await asyncio.gather(self._inquiry, return_exceptions=True)
        if self._forwarding is not None:
            await self._forwarding.stop()
        await self.inbox.stop()
        await self._renewal.stop()
        await self.member.stop()
        await self._links.close()
        if self._server is not None:
            await self._server.stop(0.2)
        self._threads.shutdown(wait=False)

    def status(self) -> Status | None:
        """Return the Raft status of the member; None while it does not run."""
        return self.member.status()

    def describe(self, restarting: str = "") -> ReplicationState:
        """Return the status of the group as this member knows it, with a verdict on a restart of ``restarting``."""
        settings, status = self._config.replication, self.member.status()
        restart = may_restart(status, restarting) if restarting else None
        if restarting and restarting not in settings.addresses:
            restart = Verdict(False, f"{restarting!r:.80} is not in dLegerPeers")
        if status is None:
            replica = self._store.replica
            assert replica is not None
            return ReplicationState(
                settings.group, MODE, settings.self_id, "stopped", 0, "", replica.dispatched_offset,
                self._store.end_offset, self._client_address, remark=self._stopped, restart=restart,
            )  # fmt: skip
        state = state_of(status, self.member.leads, settings.group, settings.addresses, self._lags, _monotonic_ms())
        return replace(
            state,
            address=self._client_address,
            remark=self.member.remark,
            restart=restart,
            diverged=self.member.diverged,
        )

    @property
    def _stopped(self) -> str:
        return f"member {self._config.replication.self_id} of this broker's group has stopped: {self.member.remark}"

    def has_caught_up(self) -> Verdict:
        """Return whether this member leads, or has every entry that was committed when it began to follow."""
        return has_caught_up(self.member.status(), self.member.leads, self.member.catch_up, self._stopped)

    async def may_restart(self) -> Verdict:
        """Ask the leader whether a majority of caught-up voters remains while this member restarts."""
        own, leader = self._config.replication.self_id, self.member.leader
        if self.member.leads:
            return may_restart(self.member.status(), own)
        if self.member.status() is None or not leader or leader == own:
            return Verdict(False, f"member {own} does not know a leader to ask")
        try:
            state = await self._links.describe(leader, own, _ASK_LEADER_S)
        except RaptorMQError as error:
            return Verdict(False, f"the leader {leader} did not respond: {error}")
        return state.restart or Verdict(False, f"the leader {leader} answered without a verdict")

    def facts(self) -> dict[str, str]:
        """Return role, term, leader and progress of the members for ``mqadmin brokerStatus`` (28).

        An example of ``dledgerMember_n1`` is ``voter, disk 3f2a, 0 bytes behind, heard 12 ms ago``. Only the leader has
        these entries.
        """
        status = self.member.status()
        if status is None:
            return {
                "dledgerRole": "stopped",
                "dledgerReason": self.member.remark,
            }
        facts = {
            "dledgerCommittedOffset": str(status.committed.offset),
            "dledgerDisk": f"{status.incarnation:x}",
            "dledgerLastAppendTimeMs": str(self._unconfirmed_ms(status)),
            "dledgerGroup": self._config.replication.group,
            "dledgerLeader": status.leader,
            "dledgerRole": str(status.role),
            "dledgerSelfId": status.id,
            "dledgerTerm": str(status.term),
            "dledgerVoters": ",".join(status.configuration.voters()),
            "dledgerRefusedFrames": str(self.inbox.refused),
        }
        for other in status.members:
            behind = status.end.offset - other.matched.offset
            facts[f"dledgerMember_{other.id}"] = (
                f"{other.suffrage}, disk {other.incarnation:x}, {behind} bytes behind, heard {other.silent_ms} ms ago"
            )
        if self.member.conflict:
            facts["dledgerConflict"] = self.member.conflict
        if self.member.refused is not None:
            facts["dledgerRefusedRange"] = self.member.refused.text
        return facts

    def _unconfirmed_ms(self, status: Status) -> int:
        return self._lags.lag_ms(_monotonic_ms(), status.committed.offset) if self.member.leads else 0

    def connections(self) -> dict[str, Any]:
        """Return the body of ``mqadmin haStatus`` (907): whether this member leads, and the lag of the others."""
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
        """Return the gauges for Prometheus as name -> (help text, value)."""
        status = self.member.status()
        figures = {
            "replication_running": ("1 while this member of its group runs", float(status is not None)),
            "replication_leads": ("1 while this member leads its group", float(self.member.leads)),
            "replication_conflict": (
                "1 while this member refuses an operation that would lose or mix data; /replication has the reason",
                float(bool(self.member.conflict)),
            ),
            "replication_waits_for_repair": (
                "1 while this member cannot copy the log, because the leader has sent damaged records",
                float(self.member.refused is not None),
            ),
            "replication_refused_frames_total": (
                "Messages refused on the port of the group: of another group, malformed or not signed",
                float(self.inbox.refused),
            ),
            "replication_refused_connections_total": (
                "Connections refused on the port of the group because of their maximum number",
                float(self._server.refused_count if self._server is not None else 0),
            ),
        }
        if self._leader_port is not None:
            figures["replication_leader_address_leads_here"] = (
                "1 while this member leads and clients reach it by dLegerLeaderAddress",
                float(self._leader_port.is_reached),
            )
        if status is not None:
            behind = [status.end.offset - other.matched.offset for other in status.members]
            figures |= {
                "replication_term": ("Raft term of the group", float(status.term)),
                "replication_elections_total": (
                    "Elections won by this member since its start",
                    float(status.elections),
                ),
                "replication_committed_bytes": ("Committed end of the log in bytes", float(status.committed.offset)),
                "replication_lag_bytes": (
                    "Lag of the slowest member in bytes; exported by the leader only",
                    float(max(behind, default=0)),
                ),
                "replication_last_append_milliseconds": (
                    "Age of the oldest uncommitted message; exported by the leader only",
                    float(self._unconfirmed_ms(status)),
                ),
                "replication_voters": ("Number of voters in the group", float(len(status.configuration.voters()))),
                "replication_shortened_bytes": (
                    "Bytes by which the log of this member begins after that of its group; above 0 it is not elected",
                    float(status.shortened_by),
                ),
                "replication_lost_bytes": (
                    "Bytes of the log that the group has lost, because a member with a shortened log leads",
                    float(0 if status.lost is None else status.lost.end - status.lost.begin),
                ),
                "replication_disk_full": (
                    "1 while the disk of this member is full, so that it copies or accepts nothing",
                    float(self.member.lacks_room),
                ),
            }
        return figures

    def not_leader(self) -> NotLeader | None:
        """Return the error for an operation that only the leader executes; None while this member leads."""
        return None if self.member.leads else self.member.not_leader()

    def not_serving(self) -> NotLeader | None:
        """Return the error for a request of a client that only the leader handles; None while this member leads and
        does not transfer leadership.
        """
        return None if self.member.leads and not self.member.hands_over else self.member.not_leader()

    async def confirm_leadership(self) -> None:
        """Wait until a majority has confirmed that this member leads. The ends of its queues are then those of the
        group, and offsets that it has committed before the call are not lost to a leader that replaced it before.

        Raises:
            NotLeader: this member does not lead, has ceased to lead since the call, or a majority does not respond.
        """
        leadership = self._store.leadership
        if not await self.member.reads.passed(_CONFIRM_LEADERSHIP_S) or not self.member.leads:
            raise self.member.not_leader()
        self._store.check_leadership(leadership)

    # --- time and roles ---

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        self.member.tick()
        self._renewal.tick()
        self.tables.tick()
        if self.member.leads:
            self._lags.sample(_monotonic_ms(), self._store.end_offset)
            self._move_to_preferred(_monotonic_ms())

    def _process_ended(self, member: str) -> None:
        self.member.process_ended(member)

    def _leading(self) -> None:
        assert self._work is not None
        self._apply_settings()
        try:
            self.tables.lead()
        except StorageError as error:  # a full disk: the next change retries
            logger.error("cannot append the tables to the log; retrying: %s", error)
        self._leaderships += 1
        self._follows.clear()
        self._lags.clear()
        self._next_move_ms = _monotonic_ms() + self._config.replication.election_ms
        self._work.register(MASTER_ID)
        self._tell_role_changed()

    def _following(self) -> None:
        assert self._work is not None
        self.tables.follow()
        self._follows.set()
        self._work.register(self._config.replication.broker_id)
        self._tell_role_changed()

    def _tell_role_changed(self) -> None:
        self._role_changed.set()
        if self._leader_port is not None:
            self._leader_port.role_changed()

    def _handing_over(self) -> None:
        if self._forwarding is not None:
            self._forwarding.begin()

    async def _follow_role(self) -> None:
        """Start and stop the services of a leader, one transition after the other.

        The running services belong to one term of leadership, because another member may have led between two terms.
        """
        assert self._work is not None
        runs = 0
        try:
            while True:
                wanted = self._leaderships if self.member.leads else 0
                if runs == wanted:
                    await self._role_changed.wait()
                    self._role_changed.clear()
                elif runs:
                    await self._logged(self._work.stop)
                    runs = 0
                elif await self._logged(self._work.start):
                    runs = wanted
                else:
                    await asyncio.sleep(_RETRY_S)
        finally:
            if runs:
                await self._logged(self._work.stop)

    async def _logged(self, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except (OSError, RaptorMQError) as error:
            logger.error("a service of the leader failed to start or stop: %s", error)
            return False
        return True


def _can_lead(other: MemberStatus) -> bool:
    """Return whether another member can take leadership over."""
    return other.active and other.suffrage == Suffrage.VOTER and not other.recovering and not other.shortened_by


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@contextmanager
def _refused_as_illegal() -> Iterator[None]:
    """Convert a refused proposal to a refused request (604): request handlers do not import the Raft library."""
    try:
        yield
    except ProposalRefused as refusal:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, str(refusal)) from None
