"""Detection of two processes with the same member id: a new disk requests to join under the id of a member that
responds.

The leader admits a new disk under an existing id when the known disk is silent. After a replacement the old disk is
silent at once. If it still responds after some time, another process has the same ``dLegerSelfId``. Only the leader can
detect this.
"""

from __future__ import annotations

from raptormq.raft import Status

PATIENCE_ELECTIONS = 5
"""Number of election timeouts for which both disks must be active before a duplicate id is reported."""


class DuplicateIdDetector:
    """Tracks the disks that request to join, with the time of their first request."""

    def __init__(self, election_ms: int) -> None:
        self._patience_ms = PATIENCE_ELECTIONS * election_ms
        self._since: dict[tuple[str, int], int] = {}

    def check(self, status: Status, now_ms: int) -> str:
        """Return a description of the conflict; empty if there is none."""
        answering = {member.id for member in status.members if member.active} | {status.id}
        asking = [disk for disk in status.joining_disks if disk[0] in answering]
        self._since = {disk: self._since.get(disk, now_ms) for disk in asking}
        for (member, disk), since in self._since.items():
            if now_ms - since >= self._patience_ms:
                return (
                    f"another process (disk {disk:x}) uses the id of member {member}, which is running: give each"
                    " member its own dLegerSelfId and its own disk"
                )
        return ""
