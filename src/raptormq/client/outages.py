"""Brokers that the readers of a consumer cannot read from: one finds a broker back and tells the others, and the log
has a line for each outage and not for each of a thousand queues.

    reader 1 --failed--> pauses 5 s ...            reader 2 --pulls--> answered
       ^----------------------- woken -------------------'

The one that failed first tries more often than the others.
Neighbour: `queue_reader` reads, and pauses longer each time. Source: none; RocketMQ's pulls pause for 3 s each.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.errors import RaptorMQError, TransportError
from raptormq.protocol.message import MessageQueue
from raptormq.transport.event_wait import set_within

log = logging.getLogger(__name__)

_SCOUT_S = 0.5
"""Pause of the one who tries for all."""


class Failure(NamedTuple):
    """Why a queue was not read."""

    text: str
    is_of_the_way: bool
    """The broker was not reached, for whatever queue."""

    @classmethod
    def of(cls, error: RaptorMQError) -> Failure:
        """Return what is to be kept of an error."""
        return cls(str(error), isinstance(error, TransportError))


@dataclass(slots=True)
class _Outage:
    """What is wrong with one broker."""

    scout: MessageQueue
    """Whose reader failed first."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    told: set[str] = field(default_factory=set)
    """Errors that are in the log already."""


class Outages:
    """Those of one consumer, by broker name."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._outages: dict[str, _Outage] = {}

    def answered(self, broker_name: str) -> None:
        """End the outage of a broker, if there was one, since it has answered a pull."""
        if self._outages and (outage := self._outages.pop(broker_name, None)) is not None:
            outage.is_over.set()

    async def pause(self, queue: MessageQueue, failure: Failure, seconds: float) -> None:
        """Wait so long after a failure, or until somebody else has reached the broker that was not reached."""
        outage = self._outages.setdefault(queue.broker_name, _Outage(queue))
        if failure.text not in outage.told:
            outage.told.add(failure.text)
            log.warning(
                "group %s cannot read %s, and perhaps other queues of the broker; it goes on trying: %s",
                *(self._group, queue, failure.text),
            )
        if failure.is_of_the_way:
            await set_within(outage.is_over, min(seconds, _SCOUT_S) if queue == outage.scout else seconds)
        else:  # the broker may serve all queues but this one
            await asyncio.sleep(seconds)
