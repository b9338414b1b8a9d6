"""What the queue of timer messages (topic rmq_sys_wheel_timer) keeps in place of tag codes: when each one is due.

::

    code = time in ms (property TIMER_OUT_MS) * 2 + 1 for a recall (property TIMER_DEL_UNIQKEY), + 0 for a message

So the messages that wait are found by the queue alone, without a look at the log. Apache RocketMQ keeps the hash of
the tags there and ignores it (``TimerMessageStore.enqueue``); hashes are smaller than any code of today.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.protocol import properties as names
from raptormq.protocol.naturals import natural
from raptormq.protocol.properties import find_property

_DUE_DIGITS = 17
_FIRST_CODE = 1 << 33
"""Of a day in 1970: more than any hash of tags."""
_LAST_CODE = 1 << 62


class TimerCode(NamedTuple):
    """A code taken apart; the order is that of delivery: recalls before the messages that they are about."""

    due_ms: int
    recall: bool


def timer_code(properties: str) -> int:
    """Return the code of a message with these properties (text form), 0 when they name no time."""
    due = natural(find_property(properties, names.TIMER_OUT_MS), _DUE_DIGITS)
    if due is None:
        return 0
    return due * 2 + (find_property(properties, names.TIMER_DELETE_KEY) is not None)


def read_timer_code(code: int) -> TimerCode | None:
    """Take a code apart; None for what is none, such as the hash of a tag."""
    return TimerCode(code >> 1, bool(code & 1)) if _FIRST_CODE <= code < _LAST_CODE else None
