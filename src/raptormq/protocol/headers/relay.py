"""Headers of what brokers pass on to consumers: 220, 222 (reset), 221, 223 (progress), 307 (running info), 309 (consume
one message).

An administrator asks the broker by 222, 223, 307 and 309; the broker asks its clients by 220, 221, 307 and 309.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class ResetOffsetRequestHeader(Header):
    """220, 222: to ``offset`` of queue ``queue_id``, else to the first message stored at or after ``timestamp`` (ms; -1
    is the end) in every queue.
    """

    group: str
    topic: str
    timestamp: int
    is_force: bool
    queue_id: int = -1
    offset: int | None = None


@dataclass(slots=True)
class ConsumerStatusRequestHeader(Header):
    """221, 223: the progress of a group's members, or of the one whose client id is ``client_addr``."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(slots=True)
class ConsumerRunningInfoRequestHeader(Header):
    """307: what a member is doing, with its threads if ``jstack_enable``."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(slots=True)
class ConsumeMessageDirectlyRequestHeader(Header):
    """309: let a member consume one message now; the broker adds the message as body, its own name and the flags."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
