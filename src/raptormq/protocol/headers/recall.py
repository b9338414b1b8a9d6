"""Headers of RECALL_MESSAGE (370)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire


@dataclass(slots=True)
class RecallMessageRequestHeader(Header):
    """The handle is the one that the answer to the send brought (:mod:`raptormq.protocol.recall_handle`)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(slots=True)
class RecallMessageResponseHeader(Header):
    """``msg_id`` is the unique key of the message that is taken back."""

    msg_id: str
