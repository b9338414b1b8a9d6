"""State of the consume queues after a start, read from their files with a few small reads each.

Items are in the order of the log and zeros follow the last one, so the end of a queue is found by bisection. After a
crash only items that point below the place where the replay of the log begins are believed (they were made durable
before the checkpoint said so); the rest is cut and comes again from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from raptormq.errors import StoreDamaged
from raptormq.storage.consume_queue import FILLER_SIZE, ITEM, ITEM_BYTES, ConsumeQueue
from raptormq.storage.filesystem import Buffer, FileSystem
from raptormq.storage.paths import StorePaths
from raptormq.storage.queue_table import QueueTable

BLOCK_ITEMS = 200
"""Items read at once, about a page."""
_NO_LIMIT = 1 << 62


class QueueFilesMissing(Exception):
    """Not an error: a queue lacks a file in the middle, so that all queues have to be built again from the log."""


def load_queues(
    filesystem: FileSystem, paths: StorePaths, table: QueueTable, replay_from: int | None, *, rebuild: bool = False
) -> None:
    """Fill ``table`` with the queues on disk; ``replay_from`` is the log offset of the replay after a crash, None
    after a clean stop. With ``rebuild`` the replay covers the whole log.

    Raises:
        StoreDamaged: a file does not start at a multiple of the configured size.
        QueueFilesMissing: without ``rebuild``, when a file is missing.
    """
    for topic in filesystem.names(paths.queues):
        for name in filesystem.names(f"{paths.queues}/{topic}"):
            if name.isascii() and name.isdigit():
                _load_queue(table, topic, int(name), replay_from, rebuild)


def _load_queue(table: QueueTable, topic: str, queue_id: int, replay_from: int | None, rebuild: bool) -> None:
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
    if starts[-1] - starts[0] != (len(starts) - 1) * files.file_size:
        if not rebuild:
            raise QueueFilesMissing
        table.reset(queue)
        return
    queue.min_offset = starts[0] // ITEM_BYTES
    queue.min_checked_at = -1
    _find_end(table, queue, starts, replay_from if replay_from is not None else _NO_LIMIT)
    if replay_from is not None:
        files.truncate(queue, starts)
    if queue.max_offset == 0:
        table.reset(queue)


def _find_end(table: QueueTable, queue: ConsumeQueue, starts: list[int], limit: int) -> None:
    """Set where ``queue`` ends and what its last item points to."""
    queue.written = (starts[-1] + table.files.file_size) // ITEM_BYTES
    end = queue.min_offset
    for start in reversed(starts):
        first = start // ITEM_BYTES
        block, items = _last_block(table, queue, first, limit)
        item = partial(_item_of, items)
        count = _first_over(0, len(items) // ITEM_BYTES, item, limit)
        if count:
            physical, size, _ = item(count - 1)
            queue.max_physical = physical if size != FILLER_SIZE else -1
            end = first + block * BLOCK_ITEMS + count
            break
    queue.written = queue.max_offset = queue.next_offset = end


def _last_block(table: QueueTable, queue: ConsumeQueue, first: int, limit: int) -> tuple[int, Buffer]:
    """Return the last block with a believed item of the file that starts with item ``first``; most end in the first."""
    files = table.files

    def read(block: int, count: int) -> Buffer:
        wanted = min(count, files.items_per_file - block * BLOCK_ITEMS)
        return files.read(queue, first + block * BLOCK_ITEMS, wanted, wait=True)

    def first_item(block: int) -> tuple[int, ...]:
        return ITEM.unpack_from(read(block, 1))

    items = read(0, BLOCK_ITEMS)
    if not _is_believed(ITEM.unpack_from(items, len(items) - ITEM_BYTES), limit):
        return 0, items
    blocks = -(-files.items_per_file // BLOCK_ITEMS)
    block = _first_over(0, blocks, first_item, limit) - 1
    return block, read(block, BLOCK_ITEMS)


def _first_over(low: int, high: int, item: Callable[[int], tuple[int, ...]], limit: int) -> int:
    """Return the first number of ``[low, high)`` whose item is not believed, ``high`` when there is none."""
    return low + bisect_left(range(low, high), True, key=lambda number: not _is_believed(item(number), limit))


def _item_of(items: Buffer, index: int) -> tuple[int, ...]:
    return ITEM.unpack_from(items, index * ITEM_BYTES)


def _is_believed(item: tuple[int, ...], limit: int) -> bool:
    physical, size, _ = item
    return size > 0 and 0 <= physical < limit
