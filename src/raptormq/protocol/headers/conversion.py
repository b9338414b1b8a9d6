"""Header of CONVERT_QUEUE (31001), which is specific to RaptorMQ."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class ConvertQueueRequestHeader(Header):
    """31001: controls the conversion of a topic's queues.

    ``action`` is ``start`` (or resume), ``stop`` or ``status``. ``queue_type`` is the target type for ``start``.
    """

    topic: str
    action: str
    queue_type: str | None = None
