"""What a member of a group waits for: for the remarks of its status and of refused requests, and for the log.

A member waits while its group has no leader, and while its copy does not count in the group yet. In both cases nothing
may be wrong with the member itself, so without these lines an administrator would look for the cause at the wrong one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from raptormq.logs import get_logger
from raptormq.raft import Role, Status, Suffrage

logger = get_logger(__name__)

_RECENT_ELECTIONS = 3
"""Number of election timeouts within which a member must have sent a message to count as responding."""
_QUIET_ELECTIONS = 5
"""Number of election timeouts before the first line in the log. Elections and restarts end earlier."""
_LOG_INTERVAL_MS = 60_000
_RESTORE = (
    "or, to go on with the messages of {own} alone, stop all members, delete config/dledger* of {own} and empty the"
    " disks of the others"
)


def shortage_of(status: Status) -> str:
    """Return what the log of a member, or that of its group, lacks at its beginning; empty if nothing."""
    found = []
    if status.shortened_by:
        found.append(
            f"the log of member {status.id} begins at {status.start}, and that of the group at {status.begin.offset}:"
            f" {status.id} is not elected until the log of the group begins at {status.start}, too"
        )
    if (lost := status.lost) is not None:
        found.append(
            f"messages are lost: offsets {lost.begin} to {lost.end} of the log, which only members had that did not"
            " answer when another one began to lead without them"
        )
    return "; ".join(found)


def cause_of_wait(status: Status, peers: Collection[str], election_ms: int, shortened_wait_ms: int) -> str:
    """Return for whom a member waits and what ends it; empty if it does not wait.

    Args:
        status: the status of the member.
        peers: ids of all members in the settings.
        election_ms: the election timeout.
        shortened_wait_ms: see :attr:`raptormq.raft.Options.shortened_wait_ms`.
    """
    recent = {each.id: each for each in status.contacts if each.silent_ms < _RECENT_ELECTIONS * election_ms}
    others = sorted({*peers, *(each.id for each in status.configuration.members)} - {status.id})
    if status.role is Role.LEADER:
        return ""
    if status.leader:
        return _wait_for_leader(status)
    if not status.group:
        in_group = [each.id for each in recent.values() if not each.is_new]
        if in_group:
            return (
                f"the disk of {status.id} is new, and the group exists (answer of {', '.join(in_group)}): it joins when"
                " the group has a leader, which needs a majority of the former disks"
            )
        return _wait_to_form(status, [each for each in others if each not in recent])
    return _wait_for_election(status, others, recent.keys(), election_ms, shortened_wait_ms)


def _wait_for_leader(status: Status) -> str:
    own = status.configuration.get(status.id)
    if own is None or own.incarnation != status.incarnation:
        return (
            f"the leader {status.leader} has not added the disk of {status.id} to the group yet; it adds a new disk of"
            " a known id while the other voters have a majority, and a new id by 'raptormq cluster add-member'"
        )
    if own.suffrage is Suffrage.JOINING:
        missing = max(0, status.committed.offset - status.stored.offset)
        return f"{status.id} copies the log of {status.leader}, lacks {missing} bytes, and votes when it has them"
    if status.recovering:
        return f"{status.id} has lost power, and votes when it has what {status.leader} had confirmed by then"
    return ""


def _wait_to_form(status: Status, missing: list[str]) -> str:
    if missing:
        return f"the group is formed when all members have started: no answer from {', '.join(missing)}"
    return f"the group is formed when all members answer each other: {status.id} has received messages of all of them"


def _wait_for_election(
    status: Status, others: Iterable[str], recent: Collection[str], election_ms: int, shortened_wait_ms: int
) -> str:
    configuration = status.configuration
    disks = {each.id: each for each in status.contacts}
    voters, quorum = configuration.voters(), configuration.quorum()
    answering, replaced, silent = [], [], []
    for member in configuration.members:
        if member.suffrage is not Suffrage.VOTER:
            continue
        incarnation = status.incarnation if member.id == status.id else None
        if member.id in recent:
            incarnation = disks[member.id].incarnation
        if incarnation is None:
            silent.append(member.id)
        elif incarnation != member.incarnation:
            replaced.append(member.id)
        else:
            answering.append(member.id)
    found = [f"the group has no leader: {len(answering)} of {len(voters)} voters answer, and {quorum} must"]
    if silent:
        found.append(f"no answer from {', '.join(silent)}: start what is stopped, and check the network")
    if replaced:
        found.append(f"a new disk, which cannot vote, at {', '.join(replaced)}: put a former disk back")
        if len(answering) < quorum and status.id in answering:
            found.append(_RESTORE.format(own=status.id))
    if not status.is_checked:
        found.append(f"{status.id} votes when the others have confirmed that its disk has all that it has promised")
    if status.recovering:
        found.append(f"{status.id} has lost power and may lack confirmed messages, so all voters must answer")
    if status.shortened_by:
        left = max(0, shortened_wait_ms - status.leaderless_ms) // 1000
        found.append(f"the log of {status.id} begins too late: it may lead in {left} s (dLegerShortenedLogWait)")
    return "; ".join(found)


class Waiting:
    """The wait of one member: its cause and its beginning."""

    def __init__(self, peers: Collection[str], election_ms: int, shortened_wait_ms: int) -> None:
        self._peers = peers
        self._election_ms = election_ms
        self._shortened_wait_ms = shortened_wait_ms
        self._since_ms: int | None = None
        self._since = ""
        self._log_due_ms = 0
        self.cause = ""
        """For whom the member waits, and what ends it; empty if it does not wait."""

    def update(self, status: Status, now_ms: int, time_of_day: Callable[[], float] = time.time) -> None:
        """Compare with the status at ``now_ms`` of a monotonic clock. Log a wait that lasts, once a minute."""
        self.cause = cause_of_wait(status, self._peers, self._election_ms, self._shortened_wait_ms)
        if not self.cause:
            self._since_ms = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
            self._since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_of_day()))
            self._log_due_ms = now_ms + _QUIET_ELECTIONS * self._election_ms
        if now_ms >= self._log_due_ms:
            self._log_due_ms = now_ms + _LOG_INTERVAL_MS
            logger.warning("member %s waits since %s: %s", status.id, self._since, self.cause)

    @property
    def remark(self) -> str:
        """The cause with the beginning of the wait; empty if the member does not wait."""
        return f"waits since {self._since}: {self.cause}" if self.cause else ""
