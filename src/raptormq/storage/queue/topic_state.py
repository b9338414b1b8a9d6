"""What a start has to know of the topics before it loads their queues: their types, deletions and conversions.

:func:`declared_topics` reads the broker's topic table (``config/topics.json``). The table says which topics there are,
and which have queues of BatchCQ: their attribute is ``queue.type`` (Apache RocketMQ ``QueueTypeUtils``).

The other two are ledgers of the store (:mod:`~raptormq.storage.fs.topic_ledger`).

:class:`DeletionLedger`, ``config/deletedTopics.json``, says which topics have been deleted while the log has records of
theirs::

    {"deletedTopics": {"orders": 1073741824}}

Records of the topic before that place of the log are dead: a recovery, which would build queues of them, leaves them
out. Records behind it are of a topic of the same name that was made later. An entry goes when the log begins behind it.

:class:`ConversionLedger`, ``config/queueConversions.json``, says which topics are being converted from one type of
queue to the other, as a start after a crash has to know it::

    {"conversions": {"orders": {"to": "BatchCQ", "state": "building", "offset": 0, "deadEnd": 0}}}

============  ====================  ==================================================================================
state         queues that count     what else there is
============  ====================  ==================================================================================
``building``  those of the old type some of the new ones, perhaps; the converter goes on with them
``stopped``   those of the old type the same; the converter goes on when it is told to
``switched``  those of the new type old ones, perhaps; everything in the log below ``offset`` is in the new ones,
                                    durably, so a recovery replays from there at the latest
============  ====================  ==================================================================================

While a topic has an entry here its type is what the entry says, whatever the topic table says. An entry goes when the
table says it too, or when the topic is deleted. An entry that a crash has kept from going counts no more where the
ledger of deletions says that records behind ``deadEnd`` are dead.

Neighbours: :mod:`~raptormq.storage.lifecycle` reads the table and the deletions when a store is opened,
:mod:`~raptormq.storage.conversion.manager` reads and writes the conversions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raptormq.files import Files
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE, SIMPLE_CQ
from raptormq.protocol.topic_names import topic_name_error
from raptormq.storage.background import Executor
from raptormq.storage.fs import FileSystem, StorePaths, TopicLedger


class DeclaredTopics(NamedTuple):
    """The topics in the broker's topic table."""

    names: frozenset[str] | None
    """None without a table, or with an old one."""
    batch: frozenset[str]
    """Those with ``queue.type=BatchCQ``."""


def declared_topics(filesystem: FileSystem, paths: StorePaths) -> DeclaredTopics:
    """Return what the table says.

    Raises:
        StoreDamaged: neither the table nor its backup can be read.
    """
    file = topics_file(f"{paths.config}/topics.json", filesystem)
    table = file.load(TopicConfigTable.from_dict)
    if table is None:
        return DeclaredTopics(None, frozenset())
    batch = frozenset(name for name, topic in table.topics.items() if topic.attributes.get(QUEUE_TYPE) == BATCH_CQ)
    return DeclaredTopics(frozenset(table.topics) if file.is_newest else None, batch)


def topics_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the topic table at ``path``, for the store and for the broker."""
    without = "without it topics are made again from their queues, with default settings"
    return JsonFile(path, files, key="topicConfigTable", without=without)


class DeletionLedger(TopicLedger[int]):
    """``config/deletedTopics.json``; its entries say where the dead records of topics end."""

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
        self.mark_changed()

    def clamp(self, log_min: int, log_end: int) -> None:
        """Forget what the log does not have any more, at its begin or, after a power cut, at its end: what comes there
        next is alive, so this has to be saved before anything does.
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
        for folder in self._folders:  # no power cut may bring the folder of a deleted topic back
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
    """The new type is BatchCQ."""
    state: str = BUILDING
    offset: int = 0
    """Log offset of the switch, once there was one."""
    tombstone_offset: int | None = None
    """Where in the log dead records of the topic ended when this was ordered; None: an older broker did not say."""

    @property
    def is_batch(self) -> bool:
        """Whether the queues that count are those of BatchCQ."""
        return self.to_batch is (self.state == SWITCHED)


class ConversionLedger(TopicLedger[ConversionEntry]):
    """``config/queueConversions.json``, with an entry for each topic that is being converted."""

    key = "conversions"
    entry_name = "conversion"
    without = "without it a conversion that was under way has to be ordered again"

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        super().__init__(filesystem, f"{paths.config}/queueConversions.json")

    async def rewrite(self, background: Executor) -> None:
        """Write the file, whatever it says: its backup says the same once that was done twice.

        Raises:
            StorageError: it could not be written.
        """
        self.mark_changed()
        await self.save(background)

    def _decode(self, topic: str, value: object) -> ConversionEntry | None:
        # The folders of a topic that the table does not have are removed, so "" or "../config" must not pass for one.
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
