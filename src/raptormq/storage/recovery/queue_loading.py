"""Loads the state of the consume queues at a start, with a few small reads per queue.

Items are in log order and zeros follow the last item, so the end of a queue is found by bisection. After a crash only
items that point below the start of the replay are trusted: they were durable before the checkpoint was written. The
other items are truncated, and the replay adds them again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache, partial

from raptormq.errors import StoreDamaged
from raptormq.storage.fs import Buffer, FileSystem
from raptormq.storage.queue import FILLER_SIZE, SWITCHED, BatchConsumeQueue, ConsumeQueue, QueueTable

BLOCK_ITEMS = 200
"""Number of items per read, about a page."""
_NO_LIMIT = 1 << 62
_PLACE = struct.Struct(">qi")


class RebuildRequired(Exception):
    """Raised when queues lack files or items of records in the log, so that all queues have to be rebuilt. It is not an
    error. The text describes what is missing.
    """


def load_queues(
    filesystem: FileSystem, table: QueueTable, log_min: int, replay_from: int | None, *, rebuild: bool = False
) -> None:
    """Fill ``table`` with the queues on disk. ``replay_from`` is the log offset of the replay after a crash, None after
    a clean stop. With ``rebuild`` the replay covers the whole log, which begins at ``log_min``.

    Raises:
        StoreDamaged: a file does not start at a multiple of the configured size.
        RebuildRequired: without ``rebuild``, a file is missing or a topic has queues of the wrong type.
    """
    simple, batch = (each.folder for each in table.files.formats)
    for topic in filesystem.names(batch):
        if topic not in filesystem.names(simple) and topic not in table.conversions:
            table.batch_topics.add(topic)
    for folder in (simple, batch):
        for topic in filesystem.names(folder):
            if (topic in table.batch_topics) is not (folder == batch):
                conversion = table.conversions.get(topic)
                if conversion is not None and conversion.state != SWITCHED:
                    continue  # the converter loads them
                if conversion is None and not rebuild:
                    raise RebuildRequired(f"{folder}/{topic} are not the queues of the topic's type")
                filesystem.remove_tree(f"{folder}/{topic}")
            for queue_id in queue_ids(filesystem, f"{folder}/{topic}"):
                queue = table.get_or_create(topic, queue_id)
                load_queue(table, queue, replay_from, rebuild=rebuild)
                if not rebuild:
                    _check_files(table, queue, log_min, replay_from if replay_from is not None else _NO_LIMIT)


def queue_ids(filesystem: FileSystem, folder: str) -> list[int]:
    """Return the ids of the queues whose files are in the folder of a topic."""
    return [int(name) for name in filesystem.names(folder) if name.isascii() and name.isdigit()]


def load_queue(table: QueueTable, queue: ConsumeQueue, replay_from: int | None, *, rebuild: bool) -> None:
    """Load the state of ``queue``, which is new, from its files; arguments and errors as for :func:`load_queues`."""
    files = table.files
    starts = files.offsets(queue)
    if not starts:  # a queue's folder is created together with its first file
        if not rebuild:
            raise RebuildRequired(f"{files.folder(queue)} has no file")
        files.remove_queue(queue)
        return
    layout = files.format(queue)
    if any(start % layout.file_size for start in starts):
        raise StoreDamaged(
            f"{files.path(queue, starts[-1])} does not start at a multiple of {layout.key}={layout.file_size}"
        )
    if starts[-1] - starts[0] != (len(starts) - 1) * layout.file_size:
        if not rebuild:
            raise RebuildRequired(f"{files.folder(queue)} lacks a file in the middle")
        table.reset(queue)
        return
    first = starts[0] // layout.item_bytes
    limit = replay_from if replay_from is not None else _NO_LIMIT
    _find_end(table, queue, starts, limit, strict=limit == _NO_LIMIT or not rebuild)
    if replay_from is None and queue.written == first:  # a file is created together with its first item
        raise RebuildRequired(f"{files.folder(queue)} has files, but no item")
    if replay_from is not None:
        files.truncate(queue, starts)
    _set_bounds(table, queue, first)
    if queue.max_offset == 0:
        table.reset(queue)


def _check_files(table: QueueTable, queue: ConsumeQueue, log_min: int, limit: int) -> None:
    """Check both ends of every file with items of existing records: each file but the last one is full, and none has
    lost its beginning. A queue of one file was checked by :func:`load_queue`.

    Raises:
        RebuildRequired: a file was emptied or truncated.
    """
    files = table.files
    layout = files.format(queue)
    per_file = layout.items_per_file
    first = queue.first_item

    def item(number: int) -> tuple[int, int]:
        found = _item_of(files.read(queue, number, 1, wait=True), layout.item_bytes, 0)
        if not _is_trusted(found, limit):
            path = files.path(queue, number // per_file * layout.file_size)
            raise RebuildRequired(f"{path} lacks item {number}, but has later items")
        return found

    start = (queue.written - 1) // per_file * per_file
    while start > first and item(start)[0] >= log_min:
        item(start - 1)
        start -= per_file
        if start <= first:
            item(start)


def _set_bounds(table: QueueTable, queue: ConsumeQueue, first: int) -> None:
    """Set the offsets of ``queue``, which has the items from ``first`` to ``written``."""
    queue.min_offset, queue.max_offset = first, queue.written
    if isinstance(queue, BatchConsumeQueue):
        queue.first_live_item = first
        queue.min_offset = queue.max_offset = 0
        if queue.written > first:
            queue.min_offset = table.batch_search.item(queue, first).base
            queue.max_offset = table.batch_search.item(queue, queue.written - 1).end
    queue.next_offset = queue.max_offset
    queue.min_checked_at = -1


def _find_end(table: QueueTable, queue: ConsumeQueue, starts: list[int], limit: int, *, strict: bool) -> None:
    """Set the number of items of ``queue`` and the log offset of the last one.

    Raises:
        RebuildRequired: with ``strict``, items near the end are damaged.
    """
    layout = table.files.format(queue)
    item_bytes = layout.item_bytes
    queue.written = (starts[-1] + layout.file_size) // item_bytes
    end = starts[0] // item_bytes
    for start in reversed(starts):
        first = start // item_bytes
        block, items = _last_block(table, queue, first, limit)
        item = partial(_item_of, items, item_bytes)
        count = _first_untrusted(0, len(items) // item_bytes, item, limit)
        if strict and not (
            _is_consistent(items, item_bytes, count, limit)
            and (count < BLOCK_ITEMS or _ends_after(table, queue, first, block, limit))
        ):
            raise RebuildRequired(f"{table.files.path(queue, start)} has damaged items at its end")
        if count:
            physical, size = item(count - 1)
            queue.max_physical = physical if size != FILLER_SIZE else -1
            end = first + block * BLOCK_ITEMS + count
            break
    queue.written = end


def _ends_after(table: QueueTable, queue: ConsumeQueue, first: int, block: int, limit: int) -> bool:
    """Return False if trusted items follow ``block``, which seemed the last one because the next item is damaged."""
    files = table.files
    at = (block + 1) * BLOCK_ITEMS
    layout = files.format(queue)
    wanted = min(BLOCK_ITEMS, layout.items_per_file - at)
    if wanted <= 0:
        return True
    return _is_consistent(files.read(queue, first + at, wanted, wait=True), layout.item_bytes, 0, limit)


def _last_block(table: QueueTable, queue: ConsumeQueue, first: int, limit: int) -> tuple[int, Buffer]:
    """Return number and items of the last block with a trusted item in the file that starts with item ``first``. In
    most files that is the first block.
    """
    files = table.files
    layout = files.format(queue)
    item_bytes, per_file = layout.item_bytes, layout.items_per_file

    def read(block: int, count: int) -> Buffer:
        wanted = min(count, per_file - block * BLOCK_ITEMS)
        return files.read(queue, first + block * BLOCK_ITEMS, wanted, wait=True)

    def first_item(block: int) -> tuple[int, int]:
        return _item_of(read(block, 1), item_bytes, 0)

    items = read(0, BLOCK_ITEMS)
    if not _is_trusted(_item_of(items, item_bytes, len(items) // item_bytes - 1), limit):
        return 0, items
    blocks = -(-per_file // BLOCK_ITEMS)
    block = _first_untrusted(0, blocks, first_item, limit) - 1
    return block, read(block, BLOCK_ITEMS)


def _first_untrusted(low: int, high: int, item: Callable[[int], tuple[int, int]], limit: int) -> int:
    """Return the first number in ``[low, high)`` whose item is not trusted; ``high`` when there is none."""
    return low + bisect_left(range(low, high), True, key=lambda number: not _is_trusted(item(number), limit))


def _item_of(items: Buffer, item_bytes: int, index: int) -> tuple[int, int]:
    """Return log offset and size, the first fields of an item of either type."""
    physical, size = _PLACE.unpack_from(items, index * item_bytes)
    return physical, size


def _is_consistent(items: Buffer, item_bytes: int, count: int, limit: int) -> bool:
    """Return False when one of the first ``count`` items is damaged, or a trusted item follows the supposed end."""
    places = _places(item_bytes, count).unpack_from(items)
    if count and not (min(places[1::2]) > 0 and min(places[::2]) >= 0 and max(places[::2]) < limit):
        return False
    behind = bytes(items[count * item_bytes :])
    return behind.count(0) == len(behind) or not any(
        _is_trusted(_item_of(behind, item_bytes, each), limit) for each in range(len(behind) // item_bytes)
    )


@lru_cache(maxsize=512)
def _places(item_bytes: int, count: int) -> struct.Struct:
    """Return the struct of log offset and size of ``count`` items of either type. Unpacking 400 items at once takes as
    long as 20 single ones."""
    return struct.Struct(">" + f"qi{item_bytes - _PLACE.size}x" * count)


def _is_trusted(item: tuple[int, int], limit: int) -> bool:
    physical, size = item
    return size > 0 and 0 <= physical < limit
