"""Headers of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), and of SEND_QUEUE_BATCHES (30320).

Source: Apache RocketMQ ``SendMessageRequestHeader``, ``SendMessageRequestHeaderV2``, ``SendMessageResponseHeader``. V1
and V2 have the same fields; V2 uses one-letter wire names. Both classes have the same attributes, so handlers do not
distinguish them.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire

DEFAULT_REGION = "DefaultRegion"
"""Region of brokers that do not report a region."""


@dataclass(slots=True)
class SendMessageRequestHeader(Header):
    """V1. The default topic and its queue number are used to create the topic automatically. If ``queue_id`` is
    negative, the broker chooses the queue.
    """

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
    """V2: the same fields with one-letter names, because they are sent with every message."""

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
    """30320: the common fields of a request for several queues, with the names of V2.

    ``topics`` is joined as described in :mod:`~raptormq.protocol.queue_batches`.
    """

    producer_group: str = wire("a")
    topics: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire("d")
    born_timestamp: int = wire("g")
    broker_name: str | None = wire("n", None)


@dataclass(slots=True)
class SendMessageResponseHeader(Header):
    """``msg_id`` is one offset id, or a comma-separated list for a batch on a SimpleCQ topic. ``queue_offset`` is that
    of the first message.
    """

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: str = wire("MSG_REGION", DEFAULT_REGION)
    trace_on: bool = wire("TRACE_ON", True)


@dataclass(slots=True)
class QueueBatchesResponseHeader(Header):
    """30320: the fields common to the responses to all parts."""

    region_id: str = wire("MSG_REGION", DEFAULT_REGION)
    trace_on: bool = wire("TRACE_ON", True)
