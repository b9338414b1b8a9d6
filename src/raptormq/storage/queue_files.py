"""The files of the consume queues, and the few of them that are open.

Neighbour: :mod:`~raptormq.storage.consume_queue` has the layout of the items. A file is named by the position of its
first byte and has its full size (6,000,000 bytes) from the start, but takes only the blocks that were written. 40,000
queues share ``max_open`` descriptors: the least recently used file is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from raptormq.errors import StorageError
from raptormq.storage.consume_queue import FILLER, ITEM_BYTES, ConsumeQueue
from raptormq.storage.filesystem import Buffer, File, FileSystem
from raptormq.storage.page_cache import Extent, PagesMissing
from raptormq.storage.paths import StorePaths, file_name, file_offsets


class QueueFiles:
    """Reads and writes items; a file is known by its queue and the position of its first byte."""

    def __init__(self, filesystem: FileSystem, paths: StorePaths, file_size: int, max_open: int) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._max_open = max_open
        self._open: OrderedDict[tuple[str, int, int], File] = OrderedDict()
        self._unsynced: set[str] = set()
        self._unsynced_folders: set[str] = set()
        self.file_size = file_size
        self.items_per_file = file_size // ITEM_BYTES

    def __len__(self) -> int:
        return len(self._open)

    def offsets(self, topic: str, queue_id: int) -> list[int]:
        """Return the positions at which the files of a queue start."""
        return file_offsets(self._filesystem.names(self._paths.queue(topic, queue_id)))

    def path(self, topic: str, queue_id: int, start: int) -> str:
        """Name of the file that starts at byte ``start`` of the queue."""
        return f"{self._paths.queue(topic, queue_id)}/{file_name(start)}"

    def _file(self, queue: ConsumeQueue, start: int, *, create: bool = False) -> File:
        key = (queue.topic, queue.queue_id, start)
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
            return file
        path = self.path(*key)
        try:
            file = self._filesystem.open(path)
        except FileNotFoundError:
            if not create:
                raise
            self._filesystem.make_folders(self._paths.queue(queue.topic, queue.queue_id))
            file = self._filesystem.open(path, create=True)
            self._names_changed(queue.topic, queue.queue_id)
        if file.size() < self.file_size:  # new, or a crash came between creating and growing it
            file.truncate(self.file_size)
        while len(self._open) >= self._max_open:
            self._open.popitem(last=False)[1].close()
        self._open[key] = file
        return file

    def read(self, queue: ConsumeQueue, offset: int, count: int, *, wait: bool) -> Buffer:
        """Return up to ``count`` items from item ``offset`` on, at least one; it ends at the end of a file.

        Raises:
            PagesMissing: without ``wait``, when the disk would have to be waited for.
            StorageError: the file is gone, or the disk cannot read it.
        """
        if offset >= queue.written:
            start = (offset - queue.written) * ITEM_BYTES
            return bytes(queue.tail[start : start + count * ITEM_BYTES]) if queue.tail else b""
        at = offset * ITEM_BYTES
        inside = at % self.file_size
        size = min(count * ITEM_BYTES, queue.written * ITEM_BYTES - at, self.file_size - inside)
        try:
            file = self._file(queue, at - inside)
            data = file.read_at(inside, size) if wait else file.read_cached(inside, size)
        except OSError as error:
            path = self.path(queue.topic, queue.queue_id, at - inside)
            raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
        if data is None:
            raise PagesMissing([Extent(self.path(queue.topic, queue.queue_id, at - inside), inside, size)])
        missing = count * ITEM_BYTES - size
        if missing and queue.tail and at + size == queue.written * ITEM_BYTES:
            return bytes(data) + queue.tail[:missing]
        return data

    def write_tail(self, queue: ConsumeQueue) -> None:
        """Write the buffered items of ``queue`` to its files.

        Raises:
            OSError: not everything was written; the tail is kept and written again next time.
        """
        tail = queue.tail
        if tail is None or queue.deleted:
            return
        done = 0
        while done < len(tail):
            at = queue.written * ITEM_BYTES + done
            inside = at % self.file_size
            data = tail[done : done + self.file_size - inside]
            self._write(queue, at - inside, inside, data)
            done += len(data)
        queue.written += len(tail) // ITEM_BYTES
        queue.tail = None

    def _write(self, queue: ConsumeQueue, start: int, inside: int, data: Buffer) -> None:
        file = self._file(queue, start, create=True)
        file.write_at(inside, [data], len(data))
        self._unsynced.add(self.path(queue.topic, queue.queue_id, start))

    def begin(self, queue: ConsumeQueue, offset: int) -> None:
        """Start an empty queue at item ``offset``: the items before it in the same file are fillers."""
        inside = offset % self.items_per_file
        if inside:
            self._write(queue, (offset - inside) * ITEM_BYTES, 0, FILLER * inside)
        queue.min_offset = queue.max_offset = queue.written = offset

    def truncate(self, queue: ConsumeQueue, starts: Iterable[int]) -> None:
        """Cut the files of ``queue``, which start at ``starts``, so that nothing follows item ``written - 1``."""
        end = queue.written * ITEM_BYTES
        for start in starts:
            if start >= end and start > 0:
                self._forget((queue.topic, queue.queue_id, start))
                self._filesystem.remove(self.path(queue.topic, queue.queue_id, start))
                self._names_changed(queue.topic, queue.queue_id)
            elif start + self.file_size > end:
                file = self._file(queue, start)
                file.truncate(end - start)
                file.truncate(self.file_size)
                self._unsynced.add(self.path(queue.topic, queue.queue_id, start))

    def remove_before(self, queue: ConsumeQueue, offset: int) -> int:
        """Remove the files that hold only items before ``offset``, except the last file; return how many."""
        starts = self.offsets(queue.topic, queue.queue_id)
        dead = [start for start in starts[:-1] if start + self.file_size <= offset * ITEM_BYTES]
        for start in dead:
            self._forget((queue.topic, queue.queue_id, start))
            self._filesystem.remove(self.path(queue.topic, queue.queue_id, start))
            self._names_changed(queue.topic, queue.queue_id)
        return len(dead)

    def remove_queue(self, queue: ConsumeQueue) -> None:
        """Remove all files of ``queue``."""
        for start in self.offsets(queue.topic, queue.queue_id):
            self._forget((queue.topic, queue.queue_id, start))
        self._filesystem.remove_tree(self._paths.queue(queue.topic, queue.queue_id))
        self._names_changed(queue.topic, queue.queue_id)

    def remove_topic(self, topic: str) -> None:
        """Remove the folder of ``topic``, whose queues have been removed."""
        self._filesystem.remove_tree(f"{self._paths.queues}/{topic}")

    def _names_changed(self, topic: str, queue_id: int) -> None:
        self._unsynced_folders |= {
            self._paths.queues,
            f"{self._paths.queues}/{topic}",
            self._paths.queue(topic, queue_id),
        }

    def _forget(self, key: tuple[str, int, int]) -> None:
        self._unsynced.discard(self.path(*key))
        file = self._open.pop(key, None)
        if file is not None:
            file.close()

    def take_unsynced(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the files written, and the folders whose names changed, since the last call; the caller makes them
        durable, or calls :meth:`put_back`.
        """
        taken = frozenset(self._unsynced), frozenset(self._unsynced_folders)
        self._unsynced.clear()
        self._unsynced_folders.clear()
        return taken

    def put_back(self, paths: frozenset[str], folders: frozenset[str]) -> None:
        """Take again what :meth:`take_unsynced` returned: it may not have become durable."""
        self._unsynced |= paths
        self._unsynced_folders |= folders

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()
