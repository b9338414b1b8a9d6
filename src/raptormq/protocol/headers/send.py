"""Headers of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), and of SEND_QUEUE_BATCHES (30320).

Source: Apache RocketMQ ``SendMessageRequestHeader``, ``SendMessageRequestHeaderV2``, ``SendMessageResponseHeader``. V1
spells the names out, V2 has one letter for each; the fields mean the same, so V1 derives from V2's meaning and
handlers see the same attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire


@dataclass(slots=True)
class SendMessageRequestHeader(Header):
    """V1. The default topic and its queue number serve auto-creation; on a negative ``queue_id`` the broker chooses."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str = ""
    reconsume_times: int = 0
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: str | None = wire("bname", None)


@dataclass(slots=True)
class SendMessageRequestHeaderV2(Header):
    """V2: the same fields behind one-letter names, because they travel with every message."""

    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire("d")
    queue_id: int = wire("e")
    sys_flag: int = wire("f")
    born_timestamp: int = wire("g")
    flag: int = wire("h")
    properties: str = wire("i", "")
    reconsume_times: int = wire("j", 0)
    unit_mode: bool = wire("k", False)
    max_reconsume_times: int | None = wire("l", None)
    batch: bool = wire("m", False)
    broker_name: str | None = wire("n", None)


@dataclass(slots=True)
class QueueBatchesRequestHeader(Header):
    """What the parts of a request for several queues have in common, under the names of V2.

    ``topics`` are joined as :mod:`~raptormq.protocol.queue_batches` says.
    """

    producer_group: str = wire("a")
    topics: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire("d")
    born_timestamp: int = wire("g")
    broker_name: str | None = wire("n", None)


@dataclass(slots=True)
class SendMessageResponseHeader(Header):
    """``msg_id`` is one offset id, or a comma-joined list for a batch on a SimpleCQ topic; ``queue_offset`` is the
    first one.
    """

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = wire("MSG_REGION", "DefaultRegion")
    trace_on: bool | None = wire("TRACE_ON", True)
