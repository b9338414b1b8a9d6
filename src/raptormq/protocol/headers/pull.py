"""Headers of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) (Apache RocketMQ ``PullMessageRequestHeader``,
``PullSysFlag``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from raptormq.protocol.schema import Header, wire


class PullFlag(IntFlag):
    """Bits of ``sys_flag`` of a pull."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


@dataclass(slots=True)
class PullMessageRequestHeader(Header):
    """11, 361. ``suspend_timeout_millis`` limits how long the broker holds a pull without messages if SUSPEND is set.
    For ``topic_id`` see :mod:`~raptormq.protocol.topic_ids`.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    broker_name: str | None = wire("bname", None)
    topic_id: str | None = None


@dataclass(slots=True)
class PullMessageResponseHeader(Header):
    """11, 361. The first four fields are required for codes 0, 19, 20 and 21, because Java clients unbox them."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    forbidden_type: int | None = None
    topic_id: str | None = None
