"""Which topics are being converted from one type of queue to the other, as a start after a crash has to know it:
``config/queueConversions.json``, a ledger of the store (:mod:`~raptormq.storage.topic_ledger`)::

    {"conversions": {"orders": {"to": "BatchCQ", "state": "building", "offset": 0, "deadEnd": 0}}}

============  ====================  ==================================================================================
state         queues that count     what else there is
============  ====================  ==================================================================================
``building``  those of the old type some of the new ones, perhaps; the converter goes on with them
``stopped``   those of the old type the same; the converter goes on when it is told to
``switched``  those of the new type old ones, perhaps; everything in the log below ``offset`` is in the new ones,
                                    durably, so a recovery replays from there at the latest
============  ====================  ==================================================================================

While a topic is in here its type is what this file says, whatever the topic table says; an entry goes when the table
says it too, or when the topic is deleted. One that a crash has kept from going counts no more where
:mod:`~raptormq.storage.deletion_ledger` says that records behind ``deadEnd`` are dead. Neighbour:
:mod:`~raptormq.storage.queue_converter` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.topic_attributes import BATCH_CQ, SIMPLE_CQ
from raptormq.protocol.topic_names import topic_fault
from raptormq.storage.background import Runner
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.paths import StorePaths
from raptormq.storage.topic_ledger import TopicLedger

BUILDING = "building"
STOPPED = "stopped"
SWITCHED = "switched"
_STATES = (BUILDING, STOPPED, SWITCHED)


@dataclass(slots=True)
class Entry:
    """One topic."""

    topic: str
    to_batch: bool
    """The new type is BatchCQ."""
    state: str = BUILDING
    offset: int = 0
    """Log offset of the switch, once there was one."""
    dead_end: int | None = None
    """Where in the log dead records of the topic ended when this was ordered; None: an older broker did not say."""

    @property
    def is_batch(self) -> bool:
        """Whether the queues that count are those of BatchCQ."""
        return self.to_batch is (self.state == SWITCHED)


class ConversionLedger(TopicLedger[Entry]):
    """The file."""

    key = "conversions"
    entry_name = "conversion"
    without = "without it a conversion that was under way has to be ordered again"

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        super().__init__(filesystem, f"{paths.config}/queueConversions.json")

    async def rewrite(self, background: Runner) -> None:
        """Write the file, whatever it says: its backup says the same once that was done twice.

        Raises:
            StorageError: it could not be written.
        """
        self.changed()
        await self.save(background)

    def _decode(self, topic: str, value: object) -> Entry | None:
        # The folders of a topic that the table does not have are removed, so "" or "../config" must not pass for one.
        if topic_fault(topic) is not None or not isinstance(value, dict):
            return None
        to, state, offset, dead_end = (value.get(key) for key in ("to", "state", "offset", "deadEnd"))
        if to not in (BATCH_CQ, SIMPLE_CQ) or state not in _STATES or not isinstance(offset, int):
            return None
        return Entry(topic, to == BATCH_CQ, state, offset, dead_end if isinstance(dead_end, int) else None)

    def _encode(self, entry: Entry) -> object:
        to = BATCH_CQ if entry.to_batch else SIMPLE_CQ
        return {"to": to, "state": entry.state, "offset": entry.offset, "deadEnd": entry.dead_end}
