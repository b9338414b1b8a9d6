"""What the log says about messages that a listener has not consumed: one structured line for each event.

    listener failed: group=billing topic=orders queue=broker-0/3 offset=17 id=7F00… keys=17 attempt=2 error=KeyError
    dead letter: group=billing topic=orders queue=%RETRY%billing/broker-0/0 offset=4 id=7F00… keys=17 attempt=17

The text is logfmt: `key=value`, in double quotes where a value has blanks. The same pairs are the attribute `fields` of
the log record, for handlers that write JSON. `queue` names its topic when the message was read from another topic than
its own. A call with several messages has one line, with the place of its first message, `last_offset` and `count`.

A listener that fails for every message would write a traceback for each. `FailureLog` adds a traceback to the first
line of a kind, and again after a minute; a kind is a type of error and the line of code that has raised it.

Neighbours: `consumer.listener_call` and `consumer.send_back` report. Source: none, Java's client logs the offset alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from logging import ERROR, WARNING, Logger
from types import TracebackType

from raptormq.protocol.message import MessageExt

TRACEBACK_INTERVAL_S = 60.0
"""Seconds before the traceback of the same kind of failure is logged again."""
_QUOTED = frozenset(' "=')
"""Characters for which a value is quoted."""

Kind = tuple[type[BaseException], str, int]
"""Type of an error, and file and line that have raised it."""
Fields = dict[str, str | int]


class FailureLog:
    """Writes the lines of one consumer.

    Args:
        log: the logger of the module that reports.
        group: the consumer group.
        clock: returns seconds.
    """

    def __init__(self, log: Logger, group: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._group = group
        self._clock = clock
        self._told_at: dict[Kind, float] = {}
        """When the traceback of each kind was logged."""

    def failed(
        self, event: str, messages: Sequence[MessageExt], error: BaseException, *, traceback: bool = True
    ) -> None:
        """Log that messages were not consumed because of `error`; `traceback` is false for an error of ours, whose
        traceback shows nothing of the application.
        """
        fields = self._fields(messages) | {"error": _text_of(error)}
        self._write(ERROR, event, fields, error if traceback and self._is_due(error) else None)

    def outcome(self, event: str, message: MessageExt, **more: str) -> None:
        """Log what happens to a message that was not consumed."""
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

    def _is_due(self, error: BaseException) -> bool:
        """Whether the traceback of an error is to be logged now; if so, it is not for a minute."""
        now = self._clock()
        kind = _kind_of(error)
        if now - self._told_at.get(kind, float("-inf")) < TRACEBACK_INTERVAL_S:
            return False
        self._told_at = {known: at for known, at in self._told_at.items() if now - at < TRACEBACK_INTERVAL_S}
        self._told_at[kind] = now
        return True


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
    """Return a value in the form of logfmt."""
    text = str(value)
    is_plain = text and text.isprintable() and _QUOTED.isdisjoint(text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)
