"""Makes the derived files durable and writes the checkpoint that says so.

Two halves: what has to be done is taken on the thread of the store, done in any thread. The order is what makes the
checkpoint true: tails written, log flushed, queue files flushed, then the checkpoint.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from raptormq.storage.checkpoint import Checkpoint, CheckpointFile
from raptormq.storage.filesystem import FileSystem
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
            self._sync_singly()
        self.file.save(self.checkpoint)

    def _sync_singly(self) -> None:
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):  # its topic has been deleted meanwhile
                file = self.filesystem.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        for folder in sorted(self.folders, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.sync_directory(folder)


def take_job(
    filesystem: FileSystem, folder: str, files: QueueFiles, file: CheckpointFile, checkpoint: Checkpoint
) -> DurabilityJob:
    """Return the job for everything that ``files`` have written; ``checkpoint`` is what will be true after it."""
    paths, folders = files.take_unsynced()
    return DurabilityJob(filesystem, folder, paths, folders, file, checkpoint)
