"""Empties the store of a replica whose log ends before the oldest bytes that the other members of the group still have.

The store must not be open. All data derived from the log is removed too, including tables; replication restores them.
"""

from __future__ import annotations

from collections.abc import Collection

from raptormq.errors import StoreDamaged, StoreLocked
from raptormq.files import make_durable_folder
from raptormq.logs import get_logger
from raptormq.storage.fs import FileSystem, StorePaths, file_name

logger = get_logger(__name__)

_OWN_TABLES = ("consumerOffset.json", "deletedTopics.json", "queueConversions.json")


def start_over(
    filesystem: FileSystem, paths: StorePaths, segment_size: int, offset: int, tables: Collection[str]
) -> None:
    """Remove all data and start an empty log at ``offset``. Durable on return; can be repeated after a crash.

    ``tables`` are the names of further files in ``config`` to remove, with their backups.

    Raises:
        StoreDamaged: ``offset`` is not a multiple of the segment size.
        StoreLocked: another process uses the store.
        OSError: the disk failed.
    """
    if offset % segment_size:
        raise StoreDamaged(
            f"the log cannot begin at {offset}, which is not a multiple of mappedFileSizeCommitLog={segment_size}: all"
            " members of a group must have the same value"
        )
    for folder in (paths.root, paths.log, paths.config):
        make_durable_folder(filesystem, folder)
    try:
        lock = filesystem.lock(paths.lock)
    except BlockingIOError as error:
        raise StoreLocked(f"{paths.root} is in use by another process") from error
    try:
        logger.warning("emptying the store in %s: its log starts at %d", paths.root, offset)
        for folder in (paths.queues, paths.batch_queues, paths.key_index, paths.deleted):
            filesystem.remove_tree(folder)
        for file in (paths.checkpoint, paths.queue_ends, paths.abort):
            filesystem.remove(file)
        for name in reversed(filesystem.names(paths.log)):  # last one first, so that a crash leaves no gap
            filesystem.remove(f"{paths.log}/{name}")
        for name in filesystem.names(paths.config):
            if name.removesuffix(".bak").removesuffix(".new") in (*_OWN_TABLES, *tables):
                filesystem.remove(f"{paths.config}/{name}")
        first = filesystem.open(f"{paths.log}/{file_name(offset)}", create=True)
        try:
            first.allocate(segment_size)
            first.sync()
        finally:
            first.close()
        for folder in (paths.log, paths.config, paths.root):
            filesystem.sync_directory(folder)
    finally:
        lock.release()
