"""Headers of requests that brokers relay to consumers: 220, 222 (reset offsets), 221, 223 (progress), 307 (running
info), 309 (consume one message).

An administrator sends 222, 223, 307 and 309 to the broker. The broker sends 220, 221, 307 and 309 to its clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class ResetOffsetRequestHeader(Header):
    """220, 222: reset queue ``queue_id`` to ``offset``, or every queue to the first message stored at or after
    ``timestamp`` (ms; -1 is the end).
    """

    group: str
    topic: str
    timestamp: int
    is_force: bool
    queue_id: int = -1
    offset: int | None = None


@dataclass(slots=True)
class ConsumerStatusRequestHeader(Header):
    """221, 223: get the progress of the members of a group, or of the member with the client id ``client_addr``."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(slots=True)
class ConsumerRunningInfoRequestHeader(Header):
    """307: get the state of a member, with its threads if ``jstack_enable`` is set."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(slots=True)
class ConsumeMessageDirectlyRequestHeader(Header):
    """309: let a member consume one message now. The broker adds the message as body, its own name and the flags."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
