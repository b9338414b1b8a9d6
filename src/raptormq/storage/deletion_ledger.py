"""Which topics have been deleted while the log has records of theirs: ``config/deletedTopics.json``, written like all
tables (:mod:`~raptormq.storage.json_file`)::

    {"deletedTopics": {"orders": 1073741824}}

Records of the topic before that place of the log are dead: a recovery, which would build queues of them, leaves them
out. Those behind it are of a topic of the same name that was made later. An entry goes when the log begins behind it.
"""

from __future__ import annotations

import asyncio
import logging

from raptormq.errors import StorageError
from raptormq.storage.background import Runner
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile
from raptormq.storage.paths import StorePaths

logger = logging.getLogger(__name__)

_TOPICS = "deletedTopics"


class DeletionLedger:
    """The file; ``ends`` has, by topic, where its dead records end."""

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        self._filesystem = filesystem
        self.path = f"{paths.config}/{_TOPICS}.json"
        self._file = JsonFile(self.path, filesystem)
        self._folders = (paths.queues, paths.batch_queues)
        self._saving = asyncio.Lock()
        self._is_saved = True
        self.ends: dict[str, int] = {}

    def load(self) -> dict[str, int]:
        """Read the file and return :attr:`ends`; what is no entry is left out with a warning: a topic may come back,
        and nothing is lost.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        found = (self._file.load() or {}).get(_TOPICS)
        for topic, end in found.items() if isinstance(found, dict) else ():
            if isinstance(end, int):
                self.ends[topic] = end
            else:
                logger.warning("%s: no place in the log: %s", self.path, str(end)[:200])
        return self.ends

    def add(self, topic: str, end: int) -> None:
        """Note that ``topic`` was deleted when the log ended at ``end``."""
        self.ends[topic] = end
        self._is_saved = False

    def fit(self, log_min: int, log_end: int) -> None:
        """Forget what the log does not have any more, at its begin or, after a power cut, at its end: what comes there
        next is alive, so this has to be saved before anything does.
        """
        fitting = {topic: min(end, log_end) for topic, end in self.ends.items() if min(end, log_end) > log_min}
        if fitting != self.ends:
            self.ends.clear()
            self.ends.update(fitting)
            self._is_saved = False

    def save_now(self) -> None:
        """Write the file if it lacks something.

        Raises:
            OSError: it could not be written.
        """
        if not self._is_saved:
            self._write(dict(self.ends))
            self._is_saved = True

    async def save(self, background: Runner) -> None:
        """Wait until the file has every entry, and no power cut brings the folder of a deleted topic back.

        Raises:
            StorageError: it could not be written.
        """
        async with self._saving:
            if self._is_saved:
                return
            self._is_saved = True
            try:
                await background.run(self._write, dict(self.ends))
            except OSError as error:
                self._is_saved = False
                raise StorageError(f"cannot save {self.path}: {error.strerror or error}") from error

    def _write(self, ends: dict[str, int]) -> None:
        for folder in self._folders:
            if self._filesystem.exists(folder):
                self._filesystem.sync_directory(folder)
        self._file.save({_TOPICS: ends})
