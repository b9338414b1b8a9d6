"""A range of the log that a follower refuses, because the leader has sent damaged records in it.

The CRC of a record was wrong when it arrived. Either the copy of the leader is damaged, or the bytes were changed on
their way. The follower therefore requests the records from the leader again, with READ_LOG_RANGE, for which the leader
validates them. If they are damaged, that request makes the leader check and repair its copy at once::

    leader                                   follower
    Append [700, 900)                   -->  the record at 800 has a wrong CRC: nothing is written
                                        <--  READ_LOG_RANGE [800, 900)
    damaged: check, repair              -->  "this copy of the log is damaged": the remark names the leader
    Append [700, 900)                   -->  written
"""

from __future__ import annotations

from raptormq.errors import NoValidCopy, RaptorMQError


class RefusedRange:
    """One refused range, and what its leader has answered."""

    def __init__(self, leader: str, begin: int, end: int, reason: str) -> None:
        """``begin`` is the log offset of the first damaged record, ``end`` that of the end of the range."""
        self.leader = leader
        self.begin = begin
        self.end = end
        self.reason = reason
        self._verdict = f"{leader} is asked whether its copy is damaged"

    def is_same(self, other: RefusedRange | None) -> bool:
        """Return whether ``other`` is the refusal of the same record of the same leader."""
        return other is not None and (other.leader, other.begin) == (self.leader, self.begin)

    def answered(self, error: RaptorMQError | None) -> bool:
        """Record why the leader has not sent valid records, None if it has. Return whether that is new."""
        before = self._verdict
        if error is None:
            self._verdict = (
                f"the copy of {self.leader} is valid, so the records were damaged on their way: check the network and"
                " the memory of both machines"
            )
        elif isinstance(error, NoValidCopy):
            self._verdict = (
                f"the copy of {self.leader} is damaged ({error}). This member waits until {self.leader} has repaired it"
                " from another member, or another member leads"
            )
        else:
            self._verdict = f"{self.leader} has not sent valid records: {error}"
        return self._verdict != before

    @property
    def text(self) -> str:
        """The refusal as one line."""
        return f"member {self.leader} has sent a damaged record at offset {self.begin} ({self.reason}); {self._verdict}"
