"""Makes the derived files durable and writes the checkpoint that says so.

Two halves: what has to be done is taken on the thread of the store, done in any thread. The order is what makes the
checkpoint true: tails written, queue files flushed, then the headers of the index, which say what it has, how far every
queue is, and the checkpoint. The log has flushes of its own, and may be behind its queues: the checkpoint says up to
which time it is durable, and a recovery believes no item of a record that is younger
(:mod:`~raptormq.storage.queue_loading`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from raptormq.files import replace_file
from raptormq.storage.checkpoint import Checkpoint, CheckpointFile
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.index_file import Header
from raptormq.storage.key_index import KeyIndex
from raptormq.storage.paths import StorePaths
from raptormq.storage.queue_ends import EndsPacker
from raptormq.storage.queue_files import QueueFiles

_MAX_SINGLE_SYNCS = 64
"""More files and folders than this are made durable with the whole volume, whoever else may be writing to it."""


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Files, and folders whose names have changed, below ``folder``; ``run`` may wait for the disk."""

    filesystem: FileSystem
    folder: str
    paths: frozenset[str]
    folders: frozenset[str]

    def run(self) -> None:
        """Make them durable.

        Raises:
            OSError: the disk failed.
        """
        if len(self.paths) + len(self.folders) > _MAX_SINGLE_SYNCS:
            self.filesystem.sync_volume(self.folder)
            return
        for path in self.paths:
            # Some are deleted meanwhile, with their topic or by retention.
            with contextlib.suppress(FileNotFoundError), contextlib.closing(self.filesystem.open(path)) as file:
                file.sync()
        for folder in sorted(self.folders, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.sync_directory(folder)


@dataclass(frozen=True, slots=True)
class DurabilityJob:
    """One checkpoint; ``run`` may wait for the disk."""

    filesystem: FileSystem
    unsynced: SyncJob
    headers: tuple[Header, ...]
    ends_path: str
    ends: EndsPacker
    file: CheckpointFile
    checkpoint: Checkpoint

    def run(self) -> None:
        """Make the queue files durable and write the checkpoint.

        Raises:
            OSError: the disk failed; the old checkpoint stands.
        """
        self.unsynced.run()
        for header in self.headers:
            header.make_durable(self.filesystem)
        replace_file(self.filesystem, self.ends_path, self.ends.packed())
        self.file.save(self.checkpoint)


def take_job(
    filesystem: FileSystem,
    paths: StorePaths,
    files: QueueFiles,
    index: KeyIndex | None,
    ends: EndsPacker,
    file: CheckpointFile,
    checkpoint: Checkpoint,
) -> DurabilityJob:
    """Return the job for everything that ``files`` and ``index`` have written; ``ends`` of the queues and
    ``checkpoint`` are what will be true after it.
    """
    paths_written, folders = files.unsynced.take()
    headers = tuple(index.headers()) if index is not None else ()
    folders |= {header.path.rpartition("/")[0] for header in headers}
    sync = SyncJob(filesystem, paths.root, paths_written, folders)
    return DurabilityJob(filesystem, sync, headers, paths.queue_ends, ends, file, checkpoint)


def done(job: DurabilityJob, files: QueueFiles, index: KeyIndex | None) -> None:
    """A job has succeeded; before this, all that was taken for it counts as lacking."""
    files.unsynced.done()
    if index is not None:
        index.headers_written(job.headers)
