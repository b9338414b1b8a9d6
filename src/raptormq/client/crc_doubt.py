"""What to make of a record whose body does not have its CRC: it is fetched once more, and left out when it comes like
that again.

The first time it may have been damaged on the way, or in a cache of the broker's; the second time it is damaged where
it is stored, and waiting for it would stop the queue for good. Anything else that cannot be read was sent like that.
Neighbours: `queue_reader` (push consumers) and `pull_consumer` ask, `received` finds out.
"""

from __future__ import annotations

from raptormq.errors import ChecksumError


class CrcDoubt:
    """The last such record of one queue."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = -1

    def arises(self, offset: int, error: Exception) -> bool:
        """True when what cannot be read at ``offset`` because of ``error`` has to be fetched once more."""
        return isinstance(error, ChecksumError) and offset != self._offset

    def remember(self, offset: int) -> None:
        """Note that what stands at ``offset`` is being fetched once more."""
        self._offset = offset
