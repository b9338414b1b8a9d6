"""State of the consume queues after a start, read from their files with a few small reads each.

Items are in the order of the log and zeros follow the last one, so the end of a queue is found by bisection. After a
crash only items that point below the place where the replay of the log begins are believed (they were made durable
before the checkpoint said so); the rest is cut and comes again from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from raptormq.errors import StoreDamaged
from raptormq.storage.consume_queue import FILLER_SIZE, ITEM, ITEM_BYTES, ConsumeQueue
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.paths import StorePaths
from raptormq.storage.queue_table import QueueTable

_BLOCK_ITEMS = 200


def load_queues(filesystem: FileSystem, paths: StorePaths, table: QueueTable, replay_from: int | None) -> None:
    """Fill ``table`` with the queues on disk; ``replay_from`` is the log offset of the replay after a crash, None
    after a clean stop.

    Raises:
        StoreDamaged: a file does not start at a multiple of the configured size.
    """
    for topic in filesystem.names(paths.queues):
        for name in filesystem.names(f"{paths.queues}/{topic}"):
            if name.isascii() and name.isdigit():
                _load_queue(table, topic, int(name), replay_from)


def _load_queue(table: QueueTable, topic: str, queue_id: int, replay_from: int | None) -> None:
    files = table.files
    starts = files.offsets(topic, queue_id)
    if not starts:
        return
    if any(start % files.file_size for start in starts):
        raise StoreDamaged(
            f"{files.path(topic, queue_id, starts[-1])} does not start at a multiple of "
            f"mappedFileSizeConsumeQueue={files.file_size}"
        )
    queue = table.find_or_make(topic, queue_id)
    queue.written = (starts[-1] + files.file_size) // ITEM_BYTES
    limit = replay_from if replay_from is not None else 1 << 62
    queue.min_offset = starts[0] // ITEM_BYTES
    end = starts[0] // ITEM_BYTES
    for start in reversed(starts):
        first = start // ITEM_BYTES
        end = _end_of_file(table, queue, first, limit)
        if end > first:
            break
    queue.written = queue.max_offset = queue.next_offset = end
    queue.min_checked_at = -1
    if replay_from is not None:
        files.truncate(queue, starts)
    if end > queue.min_offset:
        physical, size, _ = table.item(queue, end - 1)
        queue.max_physical = physical if size != FILLER_SIZE else -1
    elif end == 0:
        table.reset(queue)


def _end_of_file(table: QueueTable, queue: ConsumeQueue, first: int, limit: int) -> int:
    """Return the offset after the last believed item of the file whose first item is ``first``."""
    blocks = -(-table.files.items_per_file // _BLOCK_ITEMS)

    def block_is_over(block: int) -> bool:
        return not _believed(table.item(queue, first + block * _BLOCK_ITEMS), limit)

    block = 0
    if not block_is_over(0):
        while block + 1 < blocks and not block_is_over(min(2 * block + 1, blocks - 1)):
            block = min(2 * block + 1, blocks - 1)
        block = _bisect(block, min(2 * block + 1, blocks), block_is_over) - 1
    count = min(_BLOCK_ITEMS, table.files.items_per_file - block * _BLOCK_ITEMS)
    data = table.files.read(queue, first + block * _BLOCK_ITEMS, count, wait=True)

    def item_is_over(index: int) -> bool:
        return not _believed(ITEM.unpack_from(data, index * ITEM_BYTES), limit)

    return first + block * _BLOCK_ITEMS + _bisect(0, len(data) // ITEM_BYTES, item_is_over)


def _bisect(low: int, high: int, is_over: Callable[[int], bool]) -> int:
    """Return the first number of ``[low, high)`` for which ``is_over`` holds, ``high`` when there is none."""
    return low + bisect_left(range(low, high), True, key=is_over)


def _believed(item: tuple[int, ...], limit: int) -> bool:
    physical, size, _ = item
    return size > 0 and 0 <= physical < limit
