"""Creates trace records of sends, transactions and consumption. See also: `trace.records` formats them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable

from raptormq.client.interceptors import (
    ConsumeContext,
    ConsumerInterceptor,
    EndTransactionContext,
    ProducerInterceptor,
    SendContext,
)
from raptormq.client.trace.records import (
    TraceRecord,
    consumed_records,
    consuming_records,
    ended_transaction_record,
    sent_record,
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TraceInterceptor(ProducerInterceptor, ConsumerInterceptor):
    """Traces one producer or consumer.

    Args:
        topic: topic of the trace records; its own messages are not traced.
        add: called with new records.
        now_ms: returns milliseconds since 1970.
    """

    def __init__(
        self, topic: str, add: Callable[[Iterable[TraceRecord]], None], now_ms: Callable[[], int] = _now_ms
    ) -> None:
        self._topic = topic
        self._add = add
        self._now_ms = now_ms

    def before_send(self, context: SendContext) -> None:
        """Record the start time of the send."""
        context.state[self] = self._now_ms()

    def after_send(self, context: SendContext) -> None:
        """Trace a message that was stored."""
        record = sent_record(context, context.state.pop(self))
        if record is not None and context.message.topic != self._topic:
            self._add([record])

    def on_end_transaction(self, context: EndTransactionContext) -> None:
        """Trace the decision on a transaction."""
        self._add([ended_transaction_record(context, self._now_ms())])

    def before_consume(self, context: ConsumeContext) -> None:
        """Trace that messages are given to the application."""
        if context.topic != self._topic:
            context.state[self] = request_id = uuid.uuid4().hex.upper()
            self._add(consuming_records(context, request_id, self._now_ms()))

    def after_consume(self, context: ConsumeContext) -> None:
        """Trace the outcome of the messages."""
        if (request_id := context.state.pop(self, None)) is not None:
            self._add(consumed_records(context, request_id, self._now_ms()))
