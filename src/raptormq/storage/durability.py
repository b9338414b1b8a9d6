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
"""More files than this are made durable with the whole volume."""


@dataclass(frozen=True, slots=True)
class DurabilityJob:
    """One checkpoint; ``run`` may wait for the disk."""

    filesystem: FileSystem
    folder: str
    paths: frozenset[str]
    names_changed: bool
    file: CheckpointFile
    checkpoint: Checkpoint

    def run(self) -> None:
        """Make the queue files durable and write the checkpoint.

        Raises:
            OSError: the disk failed; the old checkpoint stands.
        """
        if self.names_changed or len(self.paths) > _MAX_SINGLE_SYNCS:
            self.filesystem.sync_volume(self.folder)
        else:
            for path in self.paths:
                self._sync(path)
        self.file.save(self.checkpoint)

    def _sync(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # its topic has been deleted meanwhile
            file = self.filesystem.open(path)
            try:
                file.sync()
            finally:
                file.close()


def take_job(
    filesystem: FileSystem, folder: str, files: QueueFiles, file: CheckpointFile, checkpoint: Checkpoint
) -> DurabilityJob:
    """Return the job for everything that ``files`` have written; ``checkpoint`` is what will be true after it."""
    paths, names_changed = files.take_unsynced()
    return DurabilityJob(filesystem, folder, paths, names_changed, file, checkpoint)
