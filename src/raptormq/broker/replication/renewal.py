"""A member whose log begins after that of the group drops it, and copies the log of the leader like a new disk.

Such a member is not elected, so the group has one member less that can lead. After :attr:`Renewal.wait_ms` it asks the
leader and gives its copy up::

    member                                       leader
    renewing=n2             ------------------>  may n2 drop its log?
    leaves the group        <------------------  yes; otherwise the member asks again after RETRY_MS
    renewing=n2 stored=900  ------------------>  do the others have all of n2's log up to 900?
    saves a new identity    <------------------  yes: granted to n2; otherwise n2 asks again until GIVE_UP_MS
    empties its store at the next start

The member leaves the group before the second question, so that it confirms nothing beyond the offset that it names.
The leader grants it if a quorum of other voters, itself included, responds, has the log of the member up to that
offset, and has it from the same begin on or an earlier one. It grants it to one member at a time, since it counts the
copy of the member for others until it knows better (:data:`GRANT_MS`). Until a member saves the new identity it has
lost nothing: after a crash it follows again. Afterwards its disk is one that the leader adds, while the other voters
have a majority.

The fields ``renewing`` and ``stored`` of DESCRIBE_REPLICATION (31011) carry the questions, ``renewal`` in the body of
the response the verdict. A leader of version 0.2.0 returns none, so the member waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raptormq.broker.replication.group_member import GroupMember
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import Verdict
from raptormq.raft import Role, Status, Suffrage

logger = get_logger(__name__)

RETRY_MS = 60_000
"""Time in ms between two attempts of a member."""
GIVE_UP_MS = 5_000
"""Time in ms after which a member that has left the group without a grant follows again."""
GRANT_MS = 60_000
"""Time in ms during which the leader grants nothing to other members."""
MAX_MISSING_BYTES = 1 << 20
"""Maximum number of bytes that another member may lack before this one leaves the group."""
_ANSWER_MS = 2_000
"""Maximum age in ms of a question whose answer counts. The others might have lost their copies since."""

Ask = Callable[[str, int | None], Awaitable[Verdict | None]]
"""Asks the member with the given id, the leader, whether this member may drop its log; with an offset, whether that is
granted. Raises :class:`RaptorMQError` without a response."""


def is_shortened(status: Status | None) -> bool:
    """Return whether a member follows a leader in its group, with a log that begins after that of the group."""
    if status is None or status.role is not Role.FOLLOWER or not status.leader or not status.is_checked:
        return False
    own = status.configuration.get(status.id)
    is_member = own is not None and own.incarnation == status.incarnation and own.suffrage is not Suffrage.JOINING
    return is_member and not status.recovering and status.shortened_by > 0


def may_renew(status: Status | None, member: str, stored: int | None) -> Verdict:
    """Return whether a quorum without ``member`` has its log up to ``stored``; without it, whether a quorum has almost
    all that ``member`` has now. ``status`` is that of the leader.
    """
    if status is None or status.role is not Role.LEADER or not status.accepts_data:
        return Verdict(False, "this member does not lead the group, or accepts no messages now")
    if status.transferring_to or not status.configuration_committed:
        return Verdict(False, "leadership is being transferred, or a membership change is in progress")
    joining = [each.id for each in status.members if each.suffrage == Suffrage.JOINING]
    own = next((each for each in status.members if each.id == member), None)
    if joining or own is None or not own.shortened_by:
        return Verdict(False, f"{', '.join(joining)} copies the log" if joining else f"{member} lacks nothing")
    needed_end = own.matched.offset - MAX_MISSING_BYTES if stored is None else stored
    sound, unfit = [status.id], []
    for other in status.members:
        if other.id == member or other.suffrage != Suffrage.VOTER:
            continue
        if not other.active or other.recovering:
            unfit.append(f"{other.id} does not respond, or has lost power")
        elif other.shortened_by > own.shortened_by or other.matched.offset < needed_end:
            unfit.append(f"{other.id} lacks a part of the log that {member} has")
        else:
            sound.append(other.id)
    needed = status.configuration.quorum()
    found = f"{len(sound)} voters have the log without {member}, and the group needs {needed}"
    return Verdict(len(sound) >= needed, "; ".join([found, *unfit]))


class Grants:
    """What the leader has granted."""

    def __init__(self) -> None:
        self._member = ""
        self._until_ms = 0

    def answer(self, status: Status | None, member: str, stored: int | None, now_ms: int) -> Verdict:
        """Return whether ``member`` may drop its log. With ``stored`` a positive verdict is a grant."""
        if now_ms < self._until_ms and member != self._member:
            return Verdict(False, f"{self._member} has just been allowed to drop its log")
        verdict = may_renew(status, member, stored)
        if verdict.holds and stored is not None:
            self._member, self._until_ms = member, now_ms + GRANT_MS
        return verdict


class Renewal:
    """Decides when a member drops its log, and does it. :meth:`tick` is called regularly."""

    def __init__(
        self, member: GroupMember, ask: Ask, has_room: Callable[[int], bool], clock: Callable[[], int], wait_ms: int
    ) -> None:
        """Create the renewal.

        Args:
            member: the member.
            ask: asks the leader.
            has_room: returns whether the disk has room for a number of bytes more.
            clock: returns monotonic ms.
            wait_ms: time in ms for which the member keeps a log that begins too late; 0 for ever.
        """
        self._member = member
        self._ask = ask
        self._has_room = has_room
        self._clock = clock
        self._wait_ms = wait_ms
        self._due_ms: int | None = None
        self._leader = ""
        self._stored: int | None = None
        """End of the log of the member since it has left the group."""
        self._give_up_ms = 0
        self.step: asyncio.Task[None] | None = None
        """The step in progress."""

    def tick(self) -> None:
        """Begin the next step if it is due."""
        if self.step is not None and not self.step.done():
            return
        if self._stored is not None:
            self.step = asyncio.get_running_loop().create_task(self._renew(self._stored))
        elif self._is_due():
            self.step = asyncio.get_running_loop().create_task(self._leave())

    async def stop(self) -> None:
        """End the step in progress."""
        if self.step is not None:
            self.step.cancel()
            await asyncio.gather(self.step, return_exceptions=True)

    def _is_due(self) -> bool:
        now, status = self._clock(), self._member.status()
        if status is not None and not status.shortened_by:
            self._due_ms, self._member.shortage_remedy = None, ""
        if not self._wait_ms or not is_shortened(status):
            return False
        if self._due_ms is None:
            self._due_ms = now + self._wait_ms
        if now < self._due_ms:
            return False
        self._due_ms = now + RETRY_MS
        return True

    async def _leave(self) -> None:
        """Leave the group if the leader agrees."""
        status = self._member.status()
        if status is None or not is_shortened(status):
            return
        self._leader = status.leader
        if not self._has_room(status.shortened_by):
            self._refused(f"the disk has no room for {status.shortened_by} bytes more (diskSpaceWarningLevelRatio)")
            return
        try:
            verdict = await self._ask(self._leader, None)
        except RaptorMQError as error:
            verdict = Verdict(False, str(error))
        if verdict is None or not verdict.holds:
            self._refused("the leader is of an earlier version" if verdict is None else verdict.reason)
            return
        self._stored = await self._member.withdraw(
            f"drops its log, which begins at {status.start}, and copies that of {self._leader}, which begins at"
            f" {status.begin.offset}"
        )
        self._give_up_ms = self._clock() + GIVE_UP_MS

    async def _renew(self, stored: int) -> None:
        """Drop the log if the leader grants it; follow again if it has not granted it in time."""
        asked_ms = self._clock()
        try:
            verdict = await self._ask(self._leader, stored)
            if verdict is not None and verdict.holds and self._clock() - asked_ms < _ANSWER_MS:
                await self._member.renew()
                return
            reason = "" if verdict is None else verdict.reason
        except (RaptorMQError, OSError) as error:
            reason = str(error)
        if self._clock() >= self._give_up_ms:
            self._stored = None
            self._refused(reason)
            self._member.take_part()

    def _refused(self, reason: str) -> None:
        text = f"its log is not copied anew: {reason}"
        if text != self._member.shortage_remedy:
            logger.warning("member %s: %s", self._member.id, text)
        self._member.shortage_remedy = text
