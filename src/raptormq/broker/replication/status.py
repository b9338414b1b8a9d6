"""Status of a member and its group for the operator, probes and tools. All functions only read.

Only the leader knows the progress of the other members, so only the leader can decide whether a member may be
restarted (:func:`may_restart`). Unknown state counts as a refusal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from raptormq.broker.replication.catch_up import CatchUp
from raptormq.protocol.bodies.replication import CAUGHT_UP_MEMBER_BYTES, CopyState, LostRange, ReplicationState, Verdict
from raptormq.raft import Role, Status, Suffrage

MODE = "dledger"
_SAMPLE_MS = 50
_MAX_SAMPLES = 20_000
"""Maximum number of samples. The newer half is always kept and covers at least 8 minutes. A lag above the age of the
oldest sample is shown as this age.
"""


class LagTimes:
    """Converts a replication lag in bytes to a time. The leader records when its log reached which end."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._ends: list[int] = []

    def clear(self) -> None:
        """Discard the samples, because the member no longer leads."""
        self._times.clear()
        self._ends.clear()

    def sample(self, now_ms: int, end: int) -> None:
        """Record the end of the log at ``now_ms``."""
        if self._ends and (end <= self._ends[-1] or now_ms < self._times[-1] + _SAMPLE_MS):
            return
        self._times.append(now_ms)
        self._ends.append(end)
        if len(self._ends) > _MAX_SAMPLES:
            del self._times[: _MAX_SAMPLES // 2], self._ends[: _MAX_SAMPLES // 2]

    def lag_ms(self, now_ms: int, matched: int) -> int:
        """Return how long ago the byte at ``matched`` was appended; 0 if it does not exist yet."""
        index = bisect_right(self._ends, matched)
        return now_ms - self._times[index] if index < len(self._times) else 0


def may_restart(status: Status | None, member: str) -> Verdict:
    """Return whether a majority of caught-up voters remains while ``member`` restarts. ``status`` is that of the
    leader.
    """
    if status is None or status.role is not Role.LEADER:
        return Verdict(False, "this member does not lead the group")
    if status.transferring_to:
        return Verdict(False, f"leadership is being transferred to {status.transferring_to}")
    if not status.accepts_data:
        return Verdict(False, "the leader does not accept messages now")
    if not status.configuration_committed:
        return Verdict(False, "a membership change is in progress")
    sound = {status.id}
    unfit: list[str] = []
    for other in status.members:
        behind = status.end.offset - other.matched.offset
        if other.id == member or other.suffrage != Suffrage.VOTER:
            continue
        if not other.active:
            unfit.append(f"{other.id} has not responded for {other.silent_ms} ms")
        elif other.recovering:
            unfit.append(f"{other.id} is recovering from a power loss")
        elif behind > CAUGHT_UP_MEMBER_BYTES:
            unfit.append(f"{other.id} is {behind} bytes behind")
        else:
            sound.add(other.id)
    sound.discard(member)
    needed = status.configuration.quorum()
    found = f"without {member} {len(sound)} voters have caught up, and the group needs {needed}"
    return Verdict(len(sound) >= needed, "; ".join([found, *unfit]))


def has_caught_up(status: Status | None, leads: bool, catch_up: CatchUp, stopped: str) -> Verdict:
    """Return whether a member has caught up: it leads, or it is a voter and has every entry that was committed when it
    began to follow. ``stopped`` is the reason why the member does not run.
    """
    if status is None:
        return Verdict(False, stopped)
    if leads:
        return Verdict(True, f"member {status.id} leads the group")
    if status.diverged:
        return Verdict(False, f"the store of member {status.id} does not fit the group: {status.diverged}")
    if not status.leader or status.leader == status.id:
        return Verdict(False, f"member {status.id} does not know a leader of the group")
    if catch_up.is_done:
        return Verdict(True, f"member {status.id} has every message that was confirmed when it rejoined")
    own = status.configuration.get(status.id)
    if own is None or own.incarnation != status.incarnation:
        return Verdict(False, f"the disk of member {status.id} has not joined the group yet")
    if catch_up.barrier is None:
        return Verdict(
            False, f"member {status.id} waits for the leader to say which messages were confirmed when it rejoined"
        )
    missing = max(0, catch_up.barrier.offset - status.applied.offset)
    if not missing and own.suffrage is Suffrage.JOINING:
        return Verdict(False, f"member {status.id} has caught up and waits to become a voter")
    return Verdict(
        False, f"member {status.id} lacks {missing} bytes of the messages that were confirmed when it rejoined"
    )


def state_of(
    status: Status, leads: bool, group: str, addresses: Mapping[str, str], lags: LagTimes, now_ms: int
) -> ReplicationState:
    """Return the status of the group as a member knows it."""
    configured = {member.id: member for member in status.configuration.members}
    progress = {other.id: other for other in status.members}
    copies: list[CopyState] = []
    for member_id in sorted({*addresses, *configured}):
        member = configured.get(member_id)
        address = addresses.get(member_id) or (member.address if member is not None else "")
        if member is None:
            copies.append(CopyState(member_id, address, "absent"))
            continue
        role = "follower" if member.suffrage is Suffrage.VOTER else str(member.suffrage)
        if member_id == status.leader:
            role = "leader"
        if (other := progress.get(member_id)) is not None:
            matched = other.matched.offset
            behind = max(0, status.end.offset - matched)
            lag_ms = lags.lag_ms(now_ms, matched) if behind else 0
            copies.append(CopyState(member_id, address, role, behind, lag_ms, other.active))
        elif member_id == status.id:
            own_lag = 0 if leads else None
            copies.append(CopyState(member_id, address, role, own_lag, own_lag, True))
        else:
            copies.append(CopyState(member_id, address, role, answering=True if member_id == status.leader else None))
    return ReplicationState(
        group=group,
        mode=MODE,
        member=status.id,
        role=_own_role(status, leads),
        term=status.term,
        leader=status.leader,
        confirmed_offset=status.committed.offset,
        last_offset=status.end.offset,
        members=tuple(copies),
        lost=None if status.lost is None else LostRange(*status.lost),
        missing=LostRange(status.begin.offset, status.start) if status.shortened_by else None,
    )


def _own_role(status: Status, leads: bool) -> str:
    if leads:
        return "leader"
    own = status.configuration.get(status.id)
    if own is not None and own.suffrage is not Suffrage.VOTER:
        return str(own.suffrage)
    return "follower" if status.leader and status.leader != status.id else "candidate"
