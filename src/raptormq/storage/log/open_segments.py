"""An LRU cache of the segment files that are open for reads.

A log of terabytes has thousands of segments, and a process may be limited to a thousand descriptors.
:mod:`~raptormq.storage.log.segment` opens its file on first use; :mod:`~raptormq.storage.queue.files` does the same for
the queues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from raptormq.storage.fs import File, is_out_of_descriptors
from raptormq.storage.log.segment import Segment


class OpenSegments:
    """Keeps at most ``max_open`` files open, not counting mapped segments and those for which ``is_written`` is true,
    whose files another thread may use. Belongs to one thread.
    """

    def __init__(self, max_open: int, is_written: Callable[[Segment], bool]) -> None:
        self.max_open = max_open
        self._is_written = is_written
        self._used: OrderedDict[Segment, None] = OrderedDict()

    def file_of(self, segment: Segment) -> File:
        """Return the open file of ``segment``. The least recently used files are closed beyond the limit, and for lack
        of descriptors.

        Raises:
            OSError: the file cannot be opened.
        """
        self._used[segment] = None
        self._used.move_to_end(segment)
        while len(self._used) > self.max_open:
            self._close_oldest()
        while True:
            try:
                return segment.file
            except OSError as error:
                if not is_out_of_descriptors(error) or len(self._used) == 1:
                    raise
                self._close_oldest()

    def _close_oldest(self) -> None:
        oldest, _ = self._used.popitem(last=False)
        if not self._is_written(oldest):
            oldest.close_if_unmapped()

    def forget(self, segment: Segment) -> None:
        """Remove a segment that is no longer part of the log."""
        self._used.pop(segment, None)
