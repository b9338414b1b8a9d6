"""Brokers that the readers of a consumer cannot read from: one finds a broker back and tells the others, and the log
has a line for each outage and not for each of a thousand queues.

    reader 1 --failed--> pauses 5 s ...            reader 2 --pulls--> answered
       ^----------------------- woken -------------------'

The one that failed first tries more often than the others.
Neighbour: `consumer.queue_reader` reads, and pauses longer each time. Source: none; RocketMQ's pulls pause for 3 s
each.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.errors import NoRoute, RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue
from raptormq.transport.timing import set_within

log = get_logger(__name__)

_PROBE_PAUSE_S = 0.5
"""Pause of the one who tries for all."""


class Failure(NamedTuple):
    """Why a queue was not read."""

    text: str
    is_transport_error: bool
    """The broker was not reached, for whatever queue."""

    @classmethod
    def of(cls, error: RaptorMQError, *, has_route: bool = True) -> Failure:
        """Return what is to be kept of an error; without a route of the topic no broker was looked for."""
        return cls(str(error), has_route and isinstance(error, TransportError | NoRoute))


@dataclass(slots=True)
class _Outage:
    """A broker that is not reached."""

    prober: MessageQueue
    """Whose reader failed first."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class BrokerOutages:
    """Those of one consumer."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._outages: dict[str, _Outage] = {}
        """By broker name."""
        self._logged: dict[MessageQueue, set[str]] = {}
        """What is in the log of queues that are not read."""

    def note_response(self, queue: MessageQueue) -> None:
        """End the outage of the queue's broker, if there was one, since it has answered a pull."""
        if self._outages and (outage := self._outages.pop(queue.broker_name, None)) is not None:
            outage.is_over.set()
        if self._logged:
            self._logged.pop(queue, None)

    async def pause(self, queue: MessageQueue, failure: Failure, seconds: float) -> None:
        """Wait so long after a failure, or until somebody else has reached the broker that was not reached."""
        self._log_failure(queue, failure.text)
        try:
            if failure.is_transport_error:
                outage = self._outages.setdefault(queue.broker_name, _Outage(queue))
                await set_within(outage.is_over, min(seconds, _PROBE_PAUSE_S) if queue == outage.prober else seconds)
            else:  # the broker may serve all queues but this one
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._logged.pop(queue, None)  # nobody reads it any more
            if (known := self._outages.get(queue.broker_name)) is not None and known.prober == queue:
                del self._outages[queue.broker_name]  # the first of the others who fails again is the next
                known.is_over.set()
            raise

    def _log_failure(self, queue: MessageQueue, text: str) -> None:
        told = self._logged.setdefault(queue, set())
        if text in told:
            return
        if not any(text in texts for other, texts in self._logged.items() if other.broker_name == queue.broker_name):
            log.warning(
                "group %s cannot read %s, and perhaps other queues of the broker; it goes on trying: %s",
                *(self._group, queue, text),
            )
        told.add(text)
