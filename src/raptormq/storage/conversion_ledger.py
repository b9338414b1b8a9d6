"""Which topics are being converted from one type of queue to the other, as a start after a crash has to know it:
``config/queueConversions.json``, written like all tables (:mod:`~raptormq.storage.json_file`)::

    {"conversions": {"orders": {"to": "BatchCQ", "state": "building", "offset": 0}}}

============  ====================  ==================================================================================
state         queues that count     what else there is
============  ====================  ==================================================================================
``building``  those of the old type some of the new ones, perhaps; the converter goes on with them
``stopped``   those of the old type the same; the converter goes on when it is told to
``switched``  those of the new type old ones, perhaps; everything in the log below ``offset`` is in the new ones,
                                    durably, so a recovery replays from there at the latest
============  ====================  ==================================================================================

While a topic is in here its type is what this file says, whatever the topic table says; an entry goes when the table
says it too. Neighbour: :mod:`~raptormq.storage.queue_converter` writes it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from raptormq.errors import StorageError
from raptormq.protocol.topic_attributes import BATCH_CQ, SIMPLE_CQ
from raptormq.storage.background import Runner
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile
from raptormq.storage.paths import StorePaths

logger = logging.getLogger(__name__)

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

    @property
    def is_batch(self) -> bool:
        """Whether the queues that count are those of BatchCQ."""
        return self.to_batch is (self.state == SWITCHED)


class ConversionLedger:
    """The file; ``entries`` are by topic."""

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        self._file = JsonFile(f"{paths.config}/queueConversions.json", filesystem)
        self._saving = asyncio.Lock()
        self.entries: dict[str, Entry] = {}
        self.is_saved = True
        """False when an entry was taken out and nobody has written the file since."""

    def load(self) -> None:
        """Read the file; what is no entry is left out with a warning, since the queues can be built from the log.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        found = (self._file.load() or {}).get("conversions")
        for topic, value in found.items() if isinstance(found, dict) else ():
            entry = _entry(topic, value)
            if entry is None:
                logger.warning("%s: no conversion: %s", self._file.path, str(value)[:200])
            else:
                self.entries[topic] = entry

    async def save(self, background: Runner) -> None:
        """Write the file.

        Raises:
            StorageError: it could not be written.
        """
        async with self._saving:
            self.is_saved = True
            try:
                await background.run(self._file.save, self.to_dict())
            except OSError as error:
                self.is_saved = False
                raise StorageError(f"cannot save {self._file.path}: {error.strerror or error}") from error

    async def settled(self) -> None:
        """Wait for a write that is under way."""
        async with self._saving:
            pass

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the file."""
        return {
            "conversions": {
                topic: {
                    "to": BATCH_CQ if entry.to_batch else SIMPLE_CQ,
                    "state": entry.state,
                    "offset": entry.offset,
                }
                for topic, entry in self.entries.items()
            }
        }


def _entry(topic: str, value: object) -> Entry | None:
    if not isinstance(value, dict):
        return None
    to, state, offset = value.get("to"), value.get("state"), value.get("offset")
    if to not in (BATCH_CQ, SIMPLE_CQ) or state not in _STATES or not isinstance(offset, int):
        return None
    return Entry(topic, to == BATCH_CQ, state, offset)
