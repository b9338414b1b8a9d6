"""Outages of brokers, shared by the readers of a consumer. One reader probes an unreachable broker and wakes the
others, and each outage is logged once instead of once per queue.

    reader 1 --failed--> pauses 5 s ...            reader 2 --pulls--> response
       ^----------------------- woken ------------------'

The reader that failed first retries more often than the others. See also: `consumer.queue_reader` reads, with a longer
pause after each failure. RocketMQ's client pauses each pull for 3 s.
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
"""Retry interval of the probing reader."""


class Failure(NamedTuple):
    """A failure to read a queue."""

    text: str
    is_transport_error: bool
    """True if the broker is unreachable, and not only the queue."""

    @classmethod
    def of(cls, error: RaptorMQError, *, has_route: bool = True) -> Failure:
        """Return the failure for an error. Without a route of the topic no broker was contacted."""
        return cls(str(error), has_route and isinstance(error, TransportError | NoRoute))


@dataclass(slots=True)
class _Outage:
    """An unreachable broker."""

    prober: MessageQueue
    """The queue whose reader failed first."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class BrokerOutages:
    """Current outages, as observed by the readers of one consumer."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._outages: dict[str, _Outage] = {}
        """Outages by broker name."""
        self._logged: dict[MessageQueue, set[str]] = {}
        """Logged failures by queue."""

    def note_response(self, queue: MessageQueue) -> None:
        """End the outage of the queue's broker after a response."""
        if self._outages and (outage := self._outages.pop(queue.broker_name, None)) is not None:
            outage.is_over.set()
        if self._logged:
            self._logged.pop(queue, None)

    async def pause(self, queue: MessageQueue, failure: Failure, seconds: float) -> None:
        """Pause the reader of a queue for up to `seconds` after a failure. The pause ends when another reader reaches
        the broker.
        """
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
                del self._outages[queue.broker_name]  # the next failing reader becomes the probing reader
                known.is_over.set()
            raise

    def _log_failure(self, queue: MessageQueue, text: str) -> None:
        told = self._logged.setdefault(queue, set())
        if text in told:
            return
        if not any(text in texts for other, texts in self._logged.items() if other.broker_name == queue.broker_name):
            log.warning(
                "group %s cannot read %s, and perhaps other queues of the broker; retrying: %s",
                *(self._group, queue, text),
            )
        told.add(text)
