"""Makes the derived files durable and writes the checkpoint that says so.

Two halves: what has to be done is taken on the thread of the store, done in any thread. The order is what makes the
checkpoint true: tails written, log flushed, queue files flushed, then the checkpoint.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from raptormq.storage.checkpoint import Checkpoint, CheckpointFile
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.key_index import KeyIndex
from raptormq.storage.queue_files import QueueFiles

_MAX_SINGLE_SYNCS = 64
"""More files and folders than this are made durable with the whole volume, whoever else may be writing to it."""


@dataclass(frozen=True, slots=True)
class DurabilityJob:
    """One checkpoint; ``run`` may wait for the disk."""

    filesystem: FileSystem
    folder: str
    paths: frozenset[str]
    folders: frozenset[str]
    index_paths: frozenset[str]
    file: CheckpointFile
    checkpoint: Checkpoint

    def run(self) -> None:
        """Make the queue files durable and write the checkpoint.

        Raises:
            OSError: the disk failed; the old checkpoint stands.
        """
        if len(self.paths) + len(self.folders) > _MAX_SINGLE_SYNCS:
            self.filesystem.sync_volume(self.folder)
        else:
            self._sync(self.paths)
            self._sync(self.index_paths)
            for folder in sorted(self.folders, reverse=True):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.sync_directory(folder)
        self.file.save(self.checkpoint)

    def _sync(self, paths: frozenset[str]) -> None:
        for path in paths:
            # Some are deleted meanwhile, with their topic or by retention.
            with contextlib.suppress(FileNotFoundError), contextlib.closing(self.filesystem.open(path)) as file:
                file.sync()


def take_job(
    filesystem: FileSystem,
    folder: str,
    files: QueueFiles,
    index: KeyIndex | None,
    file: CheckpointFile,
    checkpoint: Checkpoint,
) -> DurabilityJob:
    """Return the job for everything that ``files`` and ``index`` have written; ``checkpoint`` is what will be true
    after it.
    """
    paths, folders = files.take_unsynced()
    index_paths = index.take_unsynced() if index is not None else frozenset()
    folders |= {path.rpartition("/")[0] for path in index_paths}
    return DurabilityJob(filesystem, folder, paths, folders, index_paths, file, checkpoint)


def put_back(job: DurabilityJob, files: QueueFiles, index: KeyIndex | None) -> None:
    """Take a job again that failed."""
    files.put_back(job.paths, job.folders)
    if index is not None:
        index.put_back(job.index_paths)
