"""Header of CONVERT_QUEUE (31001), a request of our own."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class ConvertQueueRequestHeader(Header):
    """31001: what to do with the conversion of a topic's queues.

    ``action`` is ``start`` (or go on), ``stop`` or ``status``; ``queue_type`` is the type to convert to, of a start.
    """

    topic: str
    action: str
    queue_type: str | None = None
