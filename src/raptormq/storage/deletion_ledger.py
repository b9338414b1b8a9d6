"""Which topics have been deleted while the log has records of theirs: ``config/deletedTopics.json``, a ledger of
the store (:mod:`~raptormq.storage.topic_ledger`)::

    {"deletedTopics": {"orders": 1073741824}}

Records of the topic before that place of the log are dead: a recovery, which would build queues of them, leaves them
out. Those behind it are of a topic of the same name that was made later. An entry goes when the log begins behind it.
"""

from __future__ import annotations

from raptormq.storage.filesystem import FileSystem
from raptormq.storage.paths import StorePaths
from raptormq.storage.topic_ledger import TopicLedger


class DeletionLedger(TopicLedger[int]):
    """The file; its entries say where the dead records of topics end."""

    key = "deletedTopics"
    entry_name = "place in the log"
    without = "without it a build of the queues from the log brings deleted topics back"

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        super().__init__(filesystem, f"{paths.config}/{self.key}.json")
        self._filesystem = filesystem
        self._folders = (paths.queues, paths.batch_queues)

    def add(self, topic: str, end: int) -> None:
        """Note that ``topic`` was deleted when the log ended at ``end``."""
        self.entries[topic] = end
        self.changed()

    def fit(self, log_min: int, log_end: int) -> None:
        """Forget what the log does not have any more, at its begin or, after a power cut, at its end: what comes there
        next is alive, so this has to be saved before anything does.
        """
        fitting = {topic: min(end, log_end) for topic, end in self.entries.items() if min(end, log_end) > log_min}
        if fitting != self.entries:
            self.entries.clear()
            self.entries.update(fitting)
            self.changed()

    def _decode(self, topic: str, value: object) -> int | None:
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _encode(self, entry: int) -> object:
        return entry

    def _write(self, version: int, text: bytes) -> None:
        for folder in self._folders:  # no power cut may bring the folder of a deleted topic back
            if self._filesystem.exists(folder):
                self._filesystem.sync_directory(folder)
        super()._write(version, text)
