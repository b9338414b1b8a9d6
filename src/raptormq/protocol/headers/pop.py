"""Headers of POP consumption: 200050 (pop), 200051 (ack), 200052 (peek), 200053 (change invisible time), 200054
(notification), 200055 (number of waiting pops).
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class PopMessageRequestHeader(Header):
    """200050: pop up to ``max_msg_nums`` messages of one queue (-1: all).

    The messages are invisible to others for ``invisible_time`` ms. If there are none, the broker may wait for
    ``poll_time`` ms. ``init_mode`` 0 lets a new group start at the oldest message, 1 at the newest.
    """

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: int
    poll_time: int
    born_time: int
    init_mode: int
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(slots=True)
class PopMessageResponseHeader(Header):
    """200050. The offset infos describe the popped messages; see :mod:`raptormq.protocol.pop_handle`."""

    pop_time: int
    invisible_time: int
    revive_qid: int
    rest_num: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(slots=True)
class AckMessageRequestHeader(Header):
    """200051: acknowledge the message at ``offset``; ``extra_info`` is its handle."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int


@dataclass(slots=True)
class ChangeInvisibleTimeRequestHeader(Header):
    """200053: make the message at ``offset`` visible again in ``invisible_time`` ms. With ``suspend`` its next delivery
    does not increase the number of deliveries (RocketMQ 5.5).
    """

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    suspend: bool = False


@dataclass(slots=True)
class ChangeInvisibleTimeResponseHeader(Header):
    """200053: new values for the handle of the message."""

    pop_time: int
    invisible_time: int
    revive_qid: int


@dataclass(slots=True)
class PeekMessageRequestHeader(Header):
    """200052: return messages without popping them."""

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int


@dataclass(slots=True)
class NotificationRequestHeader(Header):
    """200054: wait until there is a message to pop. With a filter (``exp``, ``exp_type``; RocketMQ 5.5) only matching
    messages of the topic end the wait.
    """

    consumer_group: str
    topic: str
    queue_id: int
    poll_time: int
    born_time: int
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


@dataclass(slots=True)
class NotificationResponseHeader(Header):
    """200054: whether there is a message to pop."""

    has_msg: bool
    polling_full: bool = False


@dataclass(slots=True)
class PollingInfoRequestHeader(Header):
    """200055: get the number of pops that wait for a queue."""

    consumer_group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class PollingInfoResponseHeader(Header):
    """200055: the number of waiting pops."""

    polling_num: int
