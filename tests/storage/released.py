"""A store that evicts pages of its log, with a clock that the test advances."""

from __future__ import annotations

from raptormq.storage.maintenance.page_eviction import RECHECK_S, WATERMARKS_PER_KEPT, PageEvictor
from tests.storage.page_cache_state import Here, Volume
from tests.storage.stores import message, open_store, put

KEPT = 8000
SEGMENT = 1 << 14


class Released:
    """A store with a releaser, with a clock that the test advances."""

    def __init__(self, kept: int = KEPT) -> None:
        self.volume = Volume()
        self.store = open_store(self.volume, segment_size=SEGMENT, resident_bytes=1000)
        self.now = 0.0
        self.restart(kept)

    def restart(self, kept: int) -> None:
        store = self.store
        self.begin = store.end_offset
        self.releaser = PageEvictor(
            self.volume, store._log, store._dispatcher, store._queues, store.consumer_offsets, kept, lambda: self.now
        )

    async def send(
        self,
        size: int,
        topic: str = "topic",
        queue_id: int = 0,
        *,
        consumed: bool = False,
        durable: bool = True,
        pause: float = RECHECK_S,
    ) -> None:
        """Append about `size` bytes to the log, and run the releaser after every 500 bytes or so, with `pause` seconds
        between.
        """
        end = self.store.end_offset + size
        while self.store.end_offset < end:
            put(self.store, message("x" * 400, topic=topic, queue_id=queue_id))
            if consumed:
                self.consume_all(topic=topic, queue_id=queue_id)
            if durable:
                self.store._flusher.flush()
            await self.look(pause)

    async def look(self, pause: float = RECHECK_S) -> None:
        """Run the releaser, by default after the interval for blocked evictions."""
        self.now += pause
        self.store._log.release_mappings()
        await self.releaser.run(Here())

    def consume_all(self, group: str = "group", topic: str = "topic", queue_id: int = 0) -> None:
        self.store.consumer_offsets.commit(topic, group, queue_id, self.store.queue_end(topic, queue_id))

    @property
    def behind(self) -> int:
        """Number of bytes at the end of the log that are not evicted. All bytes before them must be evicted."""
        at = self.begin
        for begin, end in self.volume.unloaded:
            assert begin == at
            at = end
        return self.store.end_offset - at

    @property
    def kept(self) -> int:
        """Number of bytes after the last evicted one."""
        return self.store.end_offset - self.volume.unloaded[-1][1]


STEP = KEPT // WATERMARKS_PER_KEPT + 1000
SEVERAL_LOOKS = 50 * RECHECK_S
