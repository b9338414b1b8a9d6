"""Headers of RECALL_MESSAGE (370)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire


@dataclass(slots=True)
class RecallMessageRequestHeader(Header):
    """370: recall a timer message. The handle is that of the response to the send
    (:mod:`raptormq.protocol.recall_handle`)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(slots=True)
class RecallMessageResponseHeader(Header):
    """370. ``msg_id`` is the unique key of the recalled message."""

    msg_id: str
