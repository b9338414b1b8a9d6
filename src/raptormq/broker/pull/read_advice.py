"""Which broker a consumer should pull from next (``suggestWhichBrokerId`` in ``PullMessageProcessor``).

With ``slaveReadEnable`` a master directs a consumer to a slave if the consumer reads messages that are no longer in
memory. The slave directs the consumer back to the master when the consumer has caught up. If the master is down,
clients choose the slave themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from raptormq.broker.config import HaSettings
from raptormq.broker.tables import GroupTable
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.record import PHYSICAL_OFFSET_AT
from raptormq.storage.read import GetResult

_FIRST_SLAVE_ID = 1
_WHICH_WHEN_SLOW = "whichBrokerWhenConsumeSlowly"


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class ReadAdvice:
    """Chooses the broker id for pull responses."""

    def __init__(
        self, settings: HaSettings, groups: GroupTable, end_offset: Callable[[], int], memory: int | None = None
    ) -> None:
        """``memory`` is the memory in bytes; by default that of the machine."""
        self._settings = settings
        self._groups = groups
        self._end_offset = end_offset
        self._in_memory = (_memory_bytes() if memory is None else memory) * settings.memory_percent // 100

    def broker_id(self, group: str, result: GetResult) -> int:
        """Return the id of the broker from which ``group`` should pull after ``result``."""
        if not self._settings.slave_read or not result.buffers:
            return MASTER_ID
        place = int.from_bytes(result.buffers[0][PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8])
        if self._end_offset() - place <= self._in_memory:
            return MASTER_ID
        config = self._groups.get(group)
        wanted = _FIRST_SLAVE_ID if config is None else config.others.get(_WHICH_WHEN_SLOW, _FIRST_SLAVE_ID)
        return wanted if isinstance(wanted, int) else _FIRST_SLAVE_ID
