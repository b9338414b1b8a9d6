"""Log of messages that a listener has not consumed: one structured line per event.

    listener failed: group=billing topic=orders queue=broker-0/3 offset=17 id=7F00… keys=17 attempt=2 error=KeyError
    dead letter: group=billing topic=orders queue=%RETRY%billing/broker-0/0 offset=4 id=7F00… keys=17 attempt=17

The text is logfmt: `key=value`, in double quotes where a value has blanks. The same pairs are the attribute `fields` of
the log record, for handlers that write JSON. `queue` names its topic when the message was read from another topic than
its own. A call with several messages has one line, with the place of its first message, `last_offset` and `count`.

`FailureLog` logs the traceback of each kind of failure at most once per minute. A kind is a type of error and the line
of code that raised it.

See also: `consumer.listener_call` and `consumer.send_back` report. Java's client logs only the offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from logging import ERROR, WARNING, Logger
from types import TracebackType

from raptormq.log_throttle import LogThrottle
from raptormq.protocol.message import MessageExt

TRACEBACK_INTERVAL_S = 60.0
"""Minimum interval in seconds between tracebacks of the same kind."""
_QUOTED = frozenset(' "=')
"""Characters that require a value to be quoted."""

Kind = tuple[type[BaseException], str, int]
"""Type of an error, and file and line that have raised it."""
Fields = dict[str, str | int]


class FailureLog:
    """Failure log of one consumer.

    Args:
        log: the logger of the module that reports.
        group: the consumer group.
        clock: returns seconds.
    """

    def __init__(self, log: Logger, group: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._group = group
        self._tracebacks: LogThrottle[Kind] = LogThrottle(TRACEBACK_INTERVAL_S, clock)

    def failed(
        self, event: str, messages: Sequence[MessageExt], error: BaseException, *, traceback: bool = True
    ) -> None:
        """Log that messages were not consumed because of `error`. `traceback` is False for errors of the client itself,
        whose traceback has no code of the application.
        """
        fields = self._fields(messages) | {"error": _text_of(error)}
        self._write(ERROR, event, fields, error if traceback and self._tracebacks.permits(_kind_of(error)) else None)

    def outcome(self, event: str, message: MessageExt, **more: str) -> None:
        """Log the outcome of a message that was not consumed."""
        self._write(WARNING, event, {**self._fields([message]), **more}, None)

    def _write(self, level: int, event: str, fields: Fields, error: BaseException | None) -> None:
        pairs = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        self._log.log(level, "%s: %s", event, pairs, exc_info=error, extra={"fields": fields})

    def _fields(self, messages: Sequence[MessageExt]) -> Fields:
        first = messages[0]
        queue = f"{first.queue.broker_name}/{first.queue.queue_id}"
        fields: Fields = {
            "group": self._group,
            "topic": first.topic,
            "queue": queue if first.queue.topic == first.topic else f"{first.queue.topic}/{queue}",
            "offset": first.queue_offset,
        }
        if len(messages) > 1:
            fields |= {"last_offset": messages[-1].queue_offset, "count": len(messages)}
        return fields | {
            "id": first.message_id,
            "keys": " ".join(first.keys),
            "attempt": first.reconsume_times + 1,
        }


def _kind_of(error: BaseException) -> Kind:
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return type(error), "", 0
    return type(error), last.tb_frame.f_code.co_filename, last.tb_lineno


def _text_of(error: BaseException) -> str:
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}" if text else name


def _quoted(value: str | int) -> str:
    """Return a value in logfmt syntax."""
    text = str(value)
    is_plain = text and text.isprintable() and _QUOTED.isdisjoint(text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)
