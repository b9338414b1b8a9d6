"""The files of the consume queues, the paths that are not durable yet, and the folders that have to be removed.

:class:`QueueFiles` reads and writes the files. A file is named by the position of its first byte. It has its full size
from the start (6,000,000 bytes, 13,800,000 for batches) but is sparse. 40,000 queues share ``max_open`` descriptors:
the least recently used file is closed at the limit, and when the process runs out of descriptors.

:class:`UnsyncedPaths` contains the paths that are written but not durable: queue files, and folders in which files were
created, renamed or removed.

:class:`DeletedFolders` contains the folders of deleted topics, and those of queues that a conversion has replaced. A
folder is immediately renamed into ``deleted``, and a thread removes it, because a disk may take seconds for thousands
of queues.

:mod:`~raptormq.storage.queue.consume_queue` and :mod:`~raptormq.storage.queue.batch_queue` draw the items,
:mod:`~raptormq.storage.maintenance.checkpointer` syncs the paths, and :mod:`~raptormq.storage.maintenance.maintenance`
schedules the removals.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.storage.fs import (
    Buffer,
    Extent,
    File,
    FileSystem,
    PagesMissing,
    StorePaths,
    file_name,
    file_offsets,
    is_exhausted,
    is_out_of_descriptors,
)
from raptormq.storage.queue.batch_queue import BATCH_ITEM_BYTES
from raptormq.storage.queue.consume_queue import FILLER, ITEM_BYTES, ConsumeQueue

logger = get_logger(__name__)


class UnsyncedPaths:
    """Paths that a checkpoint has to make durable.

    Paths that :meth:`take` returned stay until :meth:`mark_synced`, so that a failed or cancelled checkpoint loses
    none of them.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._taken_files: set[str] = set()
        self._taken_folders: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._files or self._folders or self._taken_files or self._taken_folders)

    def add_file(self, path: str) -> None:
        """Record that a file was written."""
        self._files.add(path)

    def add_folders(self, *folders: str) -> None:
        """Record that names in ``folders`` were created, renamed or removed."""
        self._folders.update(folders)

    def discard_file(self, path: str) -> None:
        """Remove a deleted file from the paths to sync."""
        self._files.discard(path)
        self._taken_files.discard(path)

    def take(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return all files and folders, including those of an earlier call that was not followed by
        :meth:`mark_synced`.
        """
        self._taken_files |= self._files
        self._taken_folders |= self._folders
        self._files.clear()
        self._folders.clear()
        return frozenset(self._taken_files), frozenset(self._taken_folders)

    def mark_synced(self) -> None:
        """Record that the paths that :meth:`take` returned are durable."""
        self._taken_files.clear()
        self._taken_folders.clear()


class DeletedFolders:
    """Folders of queues that wait for their removal, below ``folder``."""

    def __init__(self, filesystem: FileSystem, folder: str) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._waiting: list[str] = []
        self._removing = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def find(self) -> None:
        """Find the folders that an earlier process left."""
        self._waiting = [f"{self._folder}/{name}" for name in self._filesystem.names(self._folder)]

    def add(self, folder: str) -> None:
        """Move ``folder`` to a free name below ``deleted``. If it cannot be renamed, it is removed immediately."""
        filesystem, number = self._filesystem, len(self._waiting)
        while filesystem.exists(target := f"{self._folder}/{number}"):
            number += 1
        try:
            filesystem.make_folders(self._folder)
            filesystem.replace(folder, target)
        except OSError as error:
            logger.warning("%s cannot be renamed and is removed immediately: %s", folder, error)
            filesystem.remove_tree(folder)
        else:
            self._waiting.append(target)

    def remove(self) -> None:
        """Remove all added folders. Runs in a thread.

        Raises:
            OSError: the disk failed; the next call tries again.
        """
        with self._removing:
            while self._waiting:
                self._filesystem.remove_tree(self._waiting[0])
                del self._waiting[0]


class QueueFormat(NamedTuple):
    """Sizes and folder of the files of one queue type."""

    folder: str
    item_bytes: int
    file_size: int
    key: str
    """Name of the setting of the file size."""

    @property
    def items_per_file(self) -> int:
        """Number of items in a file."""
        return self.file_size // self.item_bytes


class QueueFiles:
    """Reads and writes items. A file is identified by its queue and the position of its first byte."""

    def __init__(
        self, filesystem: FileSystem, paths: StorePaths, file_size: int, batch_file_size: int, max_open: int
    ) -> None:
        self._filesystem = filesystem
        self._root = paths.root
        self._max_open = max_open
        self._open: OrderedDict[tuple[ConsumeQueue, int], File] = OrderedDict()
        self._is_shut_down = False
        self.deleted = DeletedFolders(filesystem, paths.deleted)
        self.unsynced = UnsyncedPaths()
        self.formats = (
            QueueFormat(paths.queues, ITEM_BYTES, file_size, "mappedFileSizeConsumeQueue"),
            QueueFormat(paths.batch_queues, BATCH_ITEM_BYTES, batch_file_size, "mapperFileSizeBatchConsumeQueue"),
        )
        """Formats of SimpleCQ and BatchCQ; ``ConsumeQueue.is_batch`` is the index."""

    def __len__(self) -> int:
        return len(self._open)

    def format(self, queue: ConsumeQueue) -> QueueFormat:
        """Return the format of ``queue``."""
        return self.formats[queue.is_batch]

    def folder(self, queue: ConsumeQueue) -> str:
        """Return the folder of a queue."""
        return f"{self.formats[queue.is_batch].folder}/{queue.topic}/{queue.queue_id}"

    def offsets(self, queue: ConsumeQueue) -> list[int]:
        """Return the start positions of the files of a queue."""
        return file_offsets(self._filesystem.names(self.folder(queue)))

    def path(self, queue: ConsumeQueue, start: int) -> str:
        """Return the path of the file that starts at byte ``start`` of the queue."""
        return f"{self.folder(queue)}/{file_name(start)}"

    def _file(self, queue: ConsumeQueue, start: int, *, create: bool = False) -> File:
        key = (queue, start)
        if self._is_shut_down:
            raise OSError(errno.ESHUTDOWN, "the store is closed")
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
            return file
        path = self.path(queue, start)
        # True for the first item of a new queue, whose file nearly always does not exist yet.
        is_first = create and not queue.written
        try:
            file = None if is_first else self._open_file(path)
        except FileNotFoundError:
            if not create:
                raise
            file = None
        if file is None:
            file = self._create(queue, path)
        file_size = self.formats[queue.is_batch].file_size
        # A new file, or one whose creation was interrupted by a crash before it was extended.
        if file.size() < file_size:
            file.truncate(file_size)
        while len(self._open) >= self._max_open:
            self._close_oldest()
        self._open[key] = file
        return file

    def _open_file(self, path: str, *, create: bool = False) -> File:
        while True:
            try:
                return self._filesystem.open(path, create=create)
            except OSError as error:
                if not is_out_of_descriptors(error) or not self._open:
                    raise
                self._close_oldest()

    def close_half(self) -> None:
        """Close the least recently used half of the open files, to free descriptors."""
        for _ in range(-(-len(self._open) // 2)):
            self._close_oldest()

    def _close_oldest(self) -> None:
        self._open.popitem(last=False)[1].close()

    def _create(self, queue: ConsumeQueue, path: str) -> File:
        folder = self.folder(queue)
        self._filesystem.make_folders(folder)
        try:
            file = self._open_file(path, create=True)
        except OSError:
            if not self._filesystem.names(
                folder
            ):  # a start would treat an empty folder as a queue that has lost its files
                self._filesystem.remove_tree(folder)
            raise
        self._names_changed(queue)
        return file

    def read(self, queue: ConsumeQueue, offset: int, count: int, *, wait: bool) -> Buffer:
        """Return 1 to ``count`` items from item ``offset`` on, all from one file.

        Raises:
            PagesMissing: ``wait`` is false and the read would block on the disk.
            StorageError: the file does not exist any more, or the disk cannot read it.
        """
        _, item_bytes, file_size, _ = self.formats[queue.is_batch]
        if offset >= queue.written:
            start = (offset - queue.written) * item_bytes
            return bytes(queue.tail[start : start + count * item_bytes]) if queue.tail else b""
        at = offset * item_bytes
        inside = at % file_size
        size = min(count * item_bytes, queue.written * item_bytes - at, file_size - inside)
        try:
            file = self._file(queue, at - inside)
            data = file.read_at(inside, size) if wait else file.read_cached(inside, size)
        except OSError as error:
            path = self.path(queue, at - inside)
            raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
        if data is None:
            raise PagesMissing([Extent(self.path(queue, at - inside), inside, size)])
        missing = count * item_bytes - size
        if missing and queue.tail and at + size == queue.written * item_bytes:
            return bytes(data) + queue.tail[:missing]
        return data

    def write_tail(self, queue: ConsumeQueue) -> None:
        """Write the tail of ``queue`` to its files.

        Raises:
            OSError: not everything was written; the tail is kept and written again by the next call.
        """
        tail = queue.tail
        if tail is None or queue.deleted:
            return
        _, item_bytes, file_size, _ = self.formats[queue.is_batch]
        done = 0
        while done < len(tail):
            at = queue.written * item_bytes + done
            inside = at % file_size
            data = tail[done : done + file_size - inside]
            self._write(queue, at - inside, inside, data)
            done += len(data)
        queue.written += len(tail) // item_bytes
        queue.tail = None

    def _write(self, queue: ConsumeQueue, start: int, inside: int, data: Buffer) -> None:
        file = self._file(queue, start, create=True)
        file.write_at(inside, [data], len(data))
        self.unsynced.add_file(self.path(queue, start))

    def rewrite(self, queue: ConsumeQueue, number: int, item: bytes) -> None:
        """Overwrite an item that is already in a file.

        Raises:
            StorageError: it cannot be written.
        """
        file_size = self.formats[queue.is_batch].file_size
        at = number * len(item)
        try:
            self._write(queue, at - at % file_size, at % file_size, item)
        except OSError as error:
            where = self.path(queue, at - at % file_size)
            raise StorageError(f"cannot write {where}: {error.strerror or error}") from error

    def start_at(self, queue: ConsumeQueue, offset: int) -> None:
        """Start an empty SimpleCQ queue at ``offset``, with fillers before it in the same file.

        The fillers are written immediately, since they may take megabytes. On a full volume they become the tail of the
        queue.

        Raises:
            OSError: the file cannot be written for another reason.
        """
        inside = offset % self.formats[0].items_per_file
        queue.min_offset = queue.max_offset = queue.written = offset
        if not inside:
            return
        try:
            self._write(queue, (offset - inside) * ITEM_BYTES, 0, FILLER * inside)
        except OSError as error:
            if not is_exhausted(error):
                raise
            queue.written = offset - inside
            queue.tail = bytearray(FILLER * inside)

    def truncate(self, queue: ConsumeQueue, starts: Iterable[int]) -> None:
        """Truncate the files of ``queue``, which start at ``starts``, after item ``written - 1``."""
        _, item_bytes, file_size, _ = self.formats[queue.is_batch]
        end = queue.written * item_bytes
        for start in starts:
            if start >= end and start > 0:
                self._remove(queue, start)
            elif start + file_size > end:
                file = self._file(queue, start)
                file.truncate(end - start)
                file.truncate(file_size)
                self.unsynced.add_file(self.path(queue, start))

    def remove_before(self, queue: ConsumeQueue, offset: int) -> int:
        """Remove the files that hold only items before item ``offset``, except the last file. Return their number."""
        _, item_bytes, file_size, _ = self.formats[queue.is_batch]
        dead = [start for start in self.offsets(queue)[:-1] if start + file_size <= offset * item_bytes]
        for start in dead:
            self._remove(queue, start)
        return len(dead)

    def _remove(self, queue: ConsumeQueue, start: int) -> None:
        self._forget(queue, start)
        self._filesystem.remove(self.path(queue, start))
        self._names_changed(queue)

    def remove_queue(self, queue: ConsumeQueue) -> None:
        """Remove all files of ``queue``."""
        for start in self.offsets(queue):
            self._forget(queue, start)
        self._filesystem.remove_tree(self.folder(queue))
        self._names_changed(queue)

    def remove_topic(self, topic: str, queues: Iterable[ConsumeQueue]) -> None:
        """Move the folders of ``topic`` with ``queues`` to :attr:`deleted`, from where a thread removes them."""
        for queue in queues:
            self.close_queue(queue)
        for is_batch in (False, True):
            self.move_to_deleted(topic, is_batch=is_batch)

    def move_to_deleted(self, topic: str, *, is_batch: bool) -> None:
        """Move the folders of ``topic`` for one queue type, whose queues are closed already, to :attr:`deleted`."""
        parent = self.formats[is_batch].folder
        folder = f"{parent}/{topic}"
        if self._filesystem.exists(folder):
            self.deleted.add(folder)
            self.unsynced.add_folders(self._root, parent)

    def close_queue(self, queue: ConsumeQueue) -> None:
        """Close the files of ``queue``. The caller removes them."""
        _, item_bytes, file_size, _ = self.formats[queue.is_batch]
        for start in range(0, queue.written * item_bytes + 1, file_size):
            self._forget(queue, start)

    def _names_changed(self, queue: ConsumeQueue) -> None:
        root = self.formats[queue.is_batch].folder
        self.unsynced.add_folders(self._root, root, f"{root}/{queue.topic}", self.folder(queue))

    def _forget(self, queue: ConsumeQueue, start: int) -> None:
        self.unsynced.discard_file(self.path(queue, start))
        file = self._open.pop((queue, start), None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    def shut_down(self) -> None:
        """Close all files and refuse to open others, because another process may own the folder from now on."""
        self.close()
        self._is_shut_down = True
