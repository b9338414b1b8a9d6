"""Timer messages: requested delivery time and stored form (``HookUtils``, ``TimerMessageStore``).

The first of these properties sets the delivery time: TIMER_DELAY_SEC (relative), TIMER_DELAY_MS (relative),
TIMER_DELIVER_MS (absolute). The message is stored in queue 0 of rmq_sys_wheel_timer with ``TIMER_OUT_MS``,
``REAL_TOPIC`` and ``REAL_QID`` added. TIMER_OUT_MS is the last multiple of ``timerPrecisionMs`` before the delivery
time. The message is due ``timerPrecisionMs`` after TIMER_OUT_MS, so it is never delivered early.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.config import TimerSettings
from raptormq.broker.delay.delayed_message import Fit, restore
from raptormq.protocol import properties as names
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.copied_properties import fit_properties, merge_properties
from raptormq.protocol.properties import decode_properties, find_property
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import TIMER_TOPIC
from raptormq.storage.queue import PendingRecord
from raptormq.storage.records import encode_timer_code
from raptormq.transport.router import Refused


class TimerRules:
    """Validates the delivery times that producers request."""

    def __init__(self, settings: TimerSettings, clock: Callable[[], int]) -> None:
        self._settings = settings
        self._clock = clock

    def out_ms(self, text: str) -> int | None:
        """Return TIMER_OUT_MS for a message with these properties (text form), or None if it is not delayed.

        Raises:
            Refused: timer messages are disabled, or the time is not a number or exceeds ``timerMaxDelaySec``.
        """
        if find_property(text, names.TIMER_OUT_MS) is not None:
            return None
        now = self._clock()
        requested = _requested_time(text, now)
        if requested is None:
            return None
        if not self._settings.enabled:
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if requested < 0 or requested - now > self._settings.max_delay_s * 1000:
            self._refuse()
        if requested <= now:
            if find_property(text, names.TIMER_DELETE_KEY) is not None:
                self._refuse()
            return None
        return (requested - 1) // self._settings.precision_ms * self._settings.precision_ms

    def _refuse(self) -> None:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {self._settings.max_delay_s * 1000}ms; or if set del msg, the delay time should be bigger than the"
            " current time",
        )


def _requested_time(text: str, now: int) -> int | None:
    """Return the requested delivery time in ms since 1970, None if there is none, or -1 if it is invalid."""
    for name, unit, start in (
        (names.TIMER_DELAY_SEC, 1000, now),
        (names.TIMER_DELAY_MS, 1, now),
        (names.TIMER_DELIVER_MS, 1, 0),
    ):
        value = find_property(text, name)
        if value is not None:
            try:
                return max(0, start + int(value) * unit) if len(value) < 19 else -1
            except ValueError:
                return -1
    return None


def set_timer(record: PendingRecord, out_ms: int, fit: Fit = merge_properties) -> PendingRecord:
    """Return ``record`` as a timer message.

    Raises:
        MessageError: the properties with the added ones are too long, and ``fit`` drops none.
    """
    needed = {
        names.TIMER_OUT_MS: str(out_ms),
        names.REAL_TOPIC: record.topic,
        names.REAL_QUEUE_ID: str(record.queue_id),
    }
    text = fit(decode_properties(record.properties.decode()), needed)
    return record._replace(topic=TIMER_TOPIC, queue_id=0, properties=text.encode(), tag_code=encode_timer_code(text))


def deliver_timer(waiting: StoredMessage, now: int) -> PendingRecord | None:
    """Return the message to deliver, or None if REAL_TOPIC or REAL_QID is missing or invalid.

    TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS are added unless the properties would exceed the size limit.
    """
    record = restore(waiting)
    if record is None:
        return None
    times = {
        names.TIMER_ENQUEUE_MS: str(waiting.store_timestamp),
        names.TIMER_DEQUEUE_MS: str(now),
        names.WAIT: "false",
    }
    return record._replace(properties=fit_properties(decode_properties(waiting.properties), {}, times).text.encode())


def deletion_keys(topic: str, unique_key: str) -> tuple[str, str]:
    """Return the values of TIMER_DELETE_KEY with which a recall can identify a message: with the topic (RocketMQ up to
    5.3, and later with `appendTopicForTimerDeleteKey`) and without.
    """
    return f"{topic}+{unique_key}", unique_key
