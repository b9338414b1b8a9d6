"""State of topics that a start of the store needs before it loads their queues: queue types, deletions, conversions.

:func:`declared_topics` reads the broker's topic table (``config/topics.json``). The table has the existing topics, and
the type of their queues in the attribute ``queue.type`` (Apache RocketMQ ``QueueTypeUtils``).

Deletions and conversions are in ledgers of the store (:mod:`~raptormq.storage.fs.topic_ledger`).

:class:`DeletionLedger`, ``config/deletedTopics.json``, has a tombstone for each deleted topic that still has records in
the log::

    {"deletedTopics": {"orders": 1073741824}}

Records of the topic before this log offset are dead, and a recovery builds no queues of them. Later records belong to a
topic of the same name that was created afterwards. An entry is removed when the log starts after it.

:class:`ConversionLedger`, ``config/queueConversions.json``, has the topics that are being converted from one queue type
to the other, for a start after a crash::

    {"conversions": {"orders": {"to": "BatchCQ", "state": "building", "offset": 0, "deadEnd": 0}}}

============  ====================  ==================================================================================
state         queues in use         other files
============  ====================  ==================================================================================
``building``  those of the old type possibly some of the new type; the converter continues with them
``stopped``   those of the old type the same; the converter continues on request
``switched``  those of the new type possibly old ones. Everything in the log below ``offset`` is durable in the new
                                    queues, so a recovery replays from there at the latest
============  ====================  ==================================================================================

While a topic has an entry, its type follows from the entry and not from the topic table. An entry is removed when the
table has the same type, or when the topic is deleted. ``deadEnd`` is the tombstone of the topic when the conversion was
ordered: if the deletion ledger has a later one, a crash has left the entry, and it is ignored.

:mod:`~raptormq.storage.lifecycle` reads the table and the deletions when a store is opened,
:mod:`~raptormq.storage.conversion.manager` reads and writes the conversions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raptormq.files import Files
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.topic_attributes import BATCH_CQ, SIMPLE_CQ
from raptormq.protocol.topic_names import topic_name_error
from raptormq.storage.background import Executor
from raptormq.storage.fs import FileSystem, StorePaths, TopicLedger


class TopicHistory(NamedTuple):
    """The topic state that a replica needs before it assigns records to queues. The log contains this state only in
    later records.
    """

    batch_topics: list[str]
    """Topics of type BatchCQ."""
    tombstones: dict[str, int]
    """Log offsets before which the records of a topic are dead."""


class DeclaredTopics(NamedTuple):
    """The topics in the broker's topic table."""

    names: frozenset[str] | None
    """Names of the topics; None without a table, or if only its backup could be read."""
    batch: frozenset[str]
    """Topics with ``queue.type=BatchCQ``."""


def declared_topics(filesystem: FileSystem, paths: StorePaths) -> DeclaredTopics:
    """Read the topic table.

    Raises:
        StoreDamaged: neither the table nor its backup can be read.
    """
    file = topics_file(f"{paths.config}/topics.json", filesystem)
    table = file.load(TopicConfigTable.from_dict)
    if table is None:
        return DeclaredTopics(None, frozenset())
    batch = frozenset(name for name, topic in table.topics.items() if topic.is_batch)
    return DeclaredTopics(frozenset(table.topics) if file.is_newest else None, batch)


def topics_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the topic table at ``path``, for the store and for the broker."""
    without = "without it topics are recreated from their queues, with default settings"
    return JsonFile(path, files, key="topicConfigTable", without=without)


class DeletionLedger(TopicLedger[int]):
    """``config/deletedTopics.json``. Its entries are the log offsets before which records of a topic are dead."""

    key = "deletedTopics"
    entry_name = "log offset"
    without = "without it a rebuild of the queues restores deleted topics"

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        super().__init__(filesystem, f"{paths.config}/{self.key}.json")
        self._filesystem = filesystem
        self._folders = (paths.queues, paths.batch_queues)

    def add(self, topic: str, end: int) -> None:
        """Record that ``topic`` was deleted when the log ended at ``end``."""
        self.entries[topic] = end
        self.mark_changed()

    def clamp(self, log_min: int, log_end: int) -> None:
        """Remove entries before the start of the log, and reduce entries beyond its end to the end. A power cut may
        leave such entries. Records appended at their offsets belong to a later topic, so the ledger has to be saved
        before the first append.
        """
        fitting = {topic: min(end, log_end) for topic, end in self.entries.items() if min(end, log_end) > log_min}
        if fitting != self.entries:
            self.entries.clear()
            self.entries.update(fitting)
            self.mark_changed()

    def _decode(self, topic: str, value: object) -> int | None:
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _encode(self, entry: int) -> object:
        return entry

    def _write(self, version: int, text: bytes) -> None:
        for folder in self._folders:  # a power cut must not restore the folder of a deleted topic
            if self._filesystem.exists(folder):
                self._filesystem.sync_directory(folder)
        super()._write(version, text)


BUILDING = "building"
STOPPED = "stopped"
SWITCHED = "switched"
_STATES = (BUILDING, STOPPED, SWITCHED)


@dataclass(slots=True)
class ConversionEntry:
    """The conversion of one topic."""

    topic: str
    to_batch: bool
    """Whether the new type is BatchCQ."""
    state: str = BUILDING
    offset: int = 0
    """Log offset of the switch, 0 before it."""
    tombstone_offset: int | None = None
    """Tombstone of the topic when the conversion was ordered; None if an older broker did not record it."""

    @property
    def is_batch(self) -> bool:
        """Whether the queues in use are BatchCQ."""
        return self.to_batch is (self.state == SWITCHED)


class ConversionLedger(TopicLedger[ConversionEntry]):
    """``config/queueConversions.json``, with an entry for each topic that is being converted."""

    key = "conversions"
    entry_name = "conversion"
    without = "without it a conversion in progress has to be started again"

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        super().__init__(filesystem, f"{paths.config}/queueConversions.json")

    async def rewrite(self, background: Executor) -> None:
        """Write the file even if it has every change. After two calls its backup has the same contents.

        Raises:
            StorageError: the file could not be written.
        """
        self.mark_changed()
        await self.save(background)

    def _decode(self, topic: str, value: object) -> ConversionEntry | None:
        # The folders of topics that are not in the topic table are removed, so "../config" must not count as a topic.
        if topic_name_error(topic) is not None or not isinstance(value, dict):
            return None
        to, state, offset, tombstone_offset = (value.get(key) for key in ("to", "state", "offset", "deadEnd"))
        if to not in (BATCH_CQ, SIMPLE_CQ) or state not in _STATES or not isinstance(offset, int):
            return None
        return ConversionEntry(
            topic, to == BATCH_CQ, state, offset, tombstone_offset if isinstance(tombstone_offset, int) else None
        )

    def _encode(self, entry: ConversionEntry) -> object:
        to = BATCH_CQ if entry.to_batch else SIMPLE_CQ
        return {"to": to, "state": entry.state, "offset": entry.offset, "deadEnd": entry.tombstone_offset}
