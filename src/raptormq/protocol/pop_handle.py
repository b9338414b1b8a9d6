"""The handle by which a popped message is acknowledged: property POP_CK and the infos in the response to a pop
(``ExtraInfoUtil``, ``KeyBuilder``).

Parts of a handle, separated by blanks: start offset of the pop, time of the pop (ms), invisible time (ms), revive
queue, kind of topic, broker name, queue id, and the queue offset of the message, which may be absent::

    100 1700000000000 60000 3 0 broker-a 0 101

Kind of topic: 0 the topic itself, 1 its retry topic ``%RETRY%group_topic``, 2 ``%RETRY%group+topic``. The infos of a
response have an entry for each queue, separated by ``;``: ``kind queue start`` and ``kind queue offset,offset``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raptormq.errors import MessageError
from raptormq.protocol.topic_names import RETRY_PREFIX

POP_ORDER_REVIVE_QUEUE = 999
"""Revive queue of an orderly pop, which has no checkpoint."""
_FEWEST_PARTS = 6


@dataclass(frozen=True, slots=True)
class PopHandle:
    """A decoded handle."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    broker_name: str

    @property
    def is_orderly(self) -> bool:
        """Whether the message is from an orderly pop."""
        return self.revive_queue == POP_ORDER_REVIVE_QUEUE


def parse_handle(text: str) -> PopHandle:
    """Decode a handle; raises :class:`MessageError`."""
    parts = text.split(" ")
    if len(parts) < _FEWEST_PARTS:
        raise MessageError(f"the handle of a popped message must have at least {_FEWEST_PARTS} parts, not {text!r:.80}")
    try:
        start, pop_time, invisible, revive_queue = map(int, parts[:4])
    except ValueError as error:
        raise MessageError(f"not a handle of a popped message: {text!r:.80}") from error
    return PopHandle(start, pop_time, invisible, revive_queue, parts[5])


def build_handle(handle: PopHandle, topic: str, queue_id: int, offset: int) -> str:
    """Return the handle of one message; ``topic`` is the topic in which the message is stored."""
    parts = (
        handle.start_offset, handle.pop_time, handle.invisible_time, handle.revive_queue, topic_kind(topic),
        handle.broker_name, queue_id, offset,
    )  # fmt: skip
    return " ".join(map(str, parts))


def topic_kind(topic: str) -> str:
    """Return the kind (0, 1 or 2) of the topic in which a message is stored."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Return the topic for messages that ``group`` has popped from ``topic`` and not acknowledged in time. The ``v2``
    form is unambiguous: no other pair of names has the same one.
    """
    return topic if topic.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def real_topic(topic: str, group: str, kind: str) -> str:
    """Return the topic in which a message of ``topic`` is stored."""
    return {"1": f"{RETRY_PREFIX}{group}_{topic}", "2": f"{RETRY_PREFIX}{group}+{topic}"}.get(kind, topic)


def start_info(topic: str, queue_id: int, start: int) -> str:
    """Return the entry of a queue in ``startOffsetInfo``."""
    return f"{topic_kind(topic)} {queue_id} {start}"


def offsets_info(topic: str, queue_id: int, offsets: Sequence[int]) -> str:
    """Return the entry of a queue in ``msgOffsetInfo``."""
    return f"{topic_kind(topic)} {queue_id} {','.join(map(str, offsets))}"
