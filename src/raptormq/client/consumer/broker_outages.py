"""Brokers that the readers of a consumer cannot reach: one reader probes a broker and wakes the others, and the log has
one line for each outage and not for each of a thousand queues.

    reader 1 --failed--> pauses 5 s ...            reader 2 --pulls--> response
       ^----------------------- woken ------------------'

The reader that failed first probes more often than the others.
Neighbour: `consumer.queue_reader` reads, with a longer pause after each failure. Source: none; RocketMQ's pulls pause
for 3 s each.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.errors import NoRoute, RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue
from raptormq.transport.timing import wait_event

log = get_logger(__name__)

_PROBE_PAUSE_S = 0.5
"""Pause of the reader that probes for all."""


class Failure(NamedTuple):
    """Why a queue could not be read."""

    text: str
    is_transport_error: bool
    """The broker was not reached, for any queue."""

    @classmethod
    def of(cls, error: RaptorMQError, *, has_route: bool = True) -> Failure:
        """Return what is kept of an error; without a route of the topic, no broker was asked."""
        return cls(str(error), has_route and isinstance(error, TransportError | NoRoute))


@dataclass(slots=True)
class _Outage:
    """A broker that cannot be reached."""

    prober: MessageQueue
    """The queue whose reader failed first."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class BrokerOutages:
    """The outages that the readers of one consumer have met."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._outages: dict[str, _Outage] = {}
        """By broker name."""
        self._logged: dict[MessageQueue, set[str]] = {}
        """The failures that were logged for queues that cannot be read."""

    def note_response(self, queue: MessageQueue) -> None:
        """End the outage of the queue's broker, which has answered a pull."""
        if self._outages and (outage := self._outages.pop(queue.broker_name, None)) is not None:
            outage.is_over.set()
        if self._logged:
            self._logged.pop(queue, None)

    async def pause(self, queue: MessageQueue, failure: Failure, seconds: float) -> None:
        """Wait after a failure, or until another reader has reached the broker."""
        self._log_failure(queue, failure.text)
        try:
            if failure.is_transport_error:
                outage = self._outages.setdefault(queue.broker_name, _Outage(queue))
                await wait_event(outage.is_over, min(seconds, _PROBE_PAUSE_S) if queue == outage.prober else seconds)
            else:  # the broker may serve all other queues
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._logged.pop(queue, None)  # the queue is not read any more
            if (known := self._outages.get(queue.broker_name)) is not None and known.prober == queue:
                del self._outages[queue.broker_name]  # the next reader that fails becomes the prober
                known.is_over.set()
            raise

    def _log_failure(self, queue: MessageQueue, text: str) -> None:
        told = self._logged.setdefault(queue, set())
        if text in told:
            return
        if not any(text in texts for other, texts in self._logged.items() if other.broker_name == queue.broker_name):
            log.warning(
                "group %s cannot read %s, and perhaps other queues of the broker; it keeps trying: %s",
                *(self._group, queue, text),
            )
        told.add(text)
