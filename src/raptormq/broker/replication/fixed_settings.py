"""Settings that are equal on all members of a group and cannot be changed later.

A log of segments of another size cannot contain the same bytes, because each segment ends with a filler. Members
therefore state their values in header fields of the messages without bytes of the log, except for confirmations. A
member drops the messages of members with other values, so that they neither vote for each other nor copy from each
other. A running majority continues, and the member that joins stays out and shows the difference::

    field           setting
    segmentSize     mappedFileSizeCommitLog
    logFormat       format of the replicated log, :data:`LOG_FORMAT`

Earlier releases do not send the fields, and ignore them. A missing field is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LOG_FORMAT = 1
"""Number of the format of the replicated log. A release that reads another one has another number."""
_NAMES = {"segmentSize": "mappedFileSizeCommitLog", "logFormat": "the log format"}


class FixedSettings(NamedTuple):
    """The values of one member."""

    segment_size: int
    log_format: int = LOG_FORMAT

    def to_fields(self) -> dict[str, str]:
        """Return the header fields of a message."""
        return {"segmentSize": str(self.segment_size), "logFormat": str(self.log_format)}

    def difference(self, sender: str, fields: Mapping[str, str]) -> str:
        """Return which value of the message's sender differs from that of this member; empty if none does."""
        for name, own in self.to_fields().items():
            if (other := fields.get(name, own)) != own:
                return (
                    f"{_NAMES[name]} is {own} here and {other:.40} on {sender}, and cannot be changed in a group:"
                    " the member that joins must have the value of the group and an empty disk"
                )
        return ""
