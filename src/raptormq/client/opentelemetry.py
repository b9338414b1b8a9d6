"""`OpenTelemetryTraces`: spans of sends and of consumption, in one trace over all services (pip install
'raptormq[opentelemetry]').

    traces = OpenTelemetryTraces()
    Producer("billing", interceptors=[traces])
    ConsumerConfig(interceptors=[traces])

The context of a send goes with the message, in properties such as ``traceparent``::

    span of the application
    `- send orders        PRODUCER, from `before_send` to the outcome       --traceparent--.
                                                                                          |
       process orders     CONSUMER, a child of it <-- one message ------------------------|
       `- spans of the listener                                                           |
       process orders     CONSUMER, with a link to each <-- several messages of one call -'

A span of consumption is the current one while a listener runs. A loop settles its messages in any order, so its spans
are never current; `context_of` returns the context of a message for spans of the application.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging. See also: `interceptors` calls.
Source: semantic conventions for messaging and for RocketMQ, which are still in development.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from itertools import islice
from typing import NamedTuple

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(
        f"traces need the package opentelemetry-api; run pip install 'raptormq[opentelemetry]': {error}"
    ) from error

from raptormq.client.interceptors import (
    ConsumeContext,
    ConsumerInterceptor,
    ConsumeStatus,
    ProducerInterceptor,
    SendContext,
)
from raptormq.protocol.message import Message, MessageExt, MessageQueue

MAX_LINKS = 128
"""Maximum number of messages that the span of one call links to; equals the default limit of OpenTelemetry."""
_SCHEMA = "https://opentelemetry.io/schemas/1.30.0"

SYSTEM = "messaging.system"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
GROUP = "messaging.consumer.group.name"
MESSAGE_ID = "messaging.message.id"
BODY_SIZE = "messaging.message.body.size"
BATCH_COUNT = "messaging.batch.message_count"
TAG = "messaging.rocketmq.message.tag"
KEYS = "messaging.rocketmq.message.keys"
ERROR_TYPE = "error.type"

Attributes = dict[str, str | int | Sequence[str]]


def send_attributes(message: Message, queue: MessageQueue | None) -> Attributes:
    """Return the attributes that are known before a send. `queue` is the queue chosen by the application."""
    body: object = message.body  # not validated yet
    attributes = _attributes("send", message.topic) | _attributes_of(message)
    if isinstance(body, bytes | bytearray | memoryview):
        attributes[BODY_SIZE] = len(body)
    if queue is not None:
        attributes[PARTITION] = str(queue.queue_id)
    return attributes


def consume_attributes(context: ConsumeContext) -> Attributes:
    """Return the attributes that are known before consumption. Id, tag and keys are set only for a single message."""
    attributes = _attributes("process", context.topic) | {GROUP: context.group}
    if len(context.messages) != 1:
        return attributes | {BATCH_COUNT: len(context.messages)}
    message = context.messages[0]
    known: Attributes = {MESSAGE_ID: message.message_id, BODY_SIZE: len(message.body)}
    return attributes | known | {PARTITION: str(message.queue.queue_id)} | _attributes_of(message)


def _attributes(operation: str, topic: str) -> Attributes:
    return {SYSTEM: "rocketmq", DESTINATION: str(topic), OPERATION_NAME: operation, OPERATION_TYPE: operation}


def _attributes_of(message: Message | MessageExt) -> Attributes:
    attributes: Attributes = {}
    if message.tags:
        attributes[TAG] = message.tags
    if message.keys:
        attributes[KEYS] = list(message.keys)
    return attributes


class _Consumption(NamedTuple):
    span: Span
    token: Token[Context] | None
    """Token that restores the previous context; None for a loop, whose spans are not current."""


class OpenTelemetryTraces(ProducerInterceptor, ConsumerInterceptor):
    """Creates a span for each send and for each consumed message. One object serves any number of producers and
    consumers.

    Args:
        tracer_provider: provider of the tracer; default: the global provider.
        propagator: writes the context into properties of messages, and reads it; default: the global propagator, which
            uses ``traceparent``, ``tracestate`` and ``baggage``.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self._tracer = trace.get_tracer("raptormq.client", tracer_provider=tracer_provider, schema_url=_SCHEMA)
        self._propagator = propagator

    def context_of(self, message: MessageExt) -> Context:
        """Return the context in which a message was sent; an empty context if its properties contain none."""
        propagator = self._propagator or propagate.get_global_textmap()
        return propagator.extract(message.properties, Context())

    def before_send(self, context: SendContext) -> None:
        """Start a span, and write its context into the properties of the message."""
        message = context.message
        span = self._tracer.start_span(
            f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=send_attributes(message, context.queue)
        )
        context.state[self] = span
        propagator = self._propagator or propagate.get_global_textmap()
        propagator.inject(message.properties, trace.set_span_in_context(span))

    def after_send(self, context: SendContext) -> None:
        """End the span."""
        span: Span = context.state.pop(self)
        if context.error is not None:
            _fail(span, context.error)
        elif context.result is not None and context.message_id is not None:
            span.set_attributes({PARTITION: str(context.result.queue.queue_id), MESSAGE_ID: context.message_id})
        span.end()

    def before_consume(self, context: ConsumeContext) -> None:
        """Start a span, and make it the current one for a listener."""
        parent, links = Context(), []
        if len(context.messages) == 1:
            parent = self.context_of(context.messages[0])
        else:
            sent = (trace.get_current_span(self.context_of(each)) for each in islice(context.messages, MAX_LINKS))
            links = [Link(span.get_span_context()) for span in sent if span.get_span_context().is_valid]
        span = self._tracer.start_span(
            f"process {context.topic}", parent, SpanKind.CONSUMER, consume_attributes(context), links
        )
        token = contexts.attach(trace.set_span_in_context(span, parent)) if context.in_listener else None
        context.state[self] = _Consumption(span, token)

    def after_consume(self, context: ConsumeContext) -> None:
        """End the span, with an error status if a message was not consumed."""
        span, token = context.state.pop(self)
        if context.error is not None:
            _fail(span, context.error)
        elif context.status is not None and context.status is not ConsumeStatus.CONSUMED:
            span.set_attribute(ERROR_TYPE, context.status.name)
            again = f" ({len(context.failed)} of {len(context.messages)} messages)" if context.failed else ""
            span.set_status(Status(StatusCode.ERROR, f"{context.status.value}{again}"))
        span.end()
        if token is not None:
            contexts.detach(token)


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))
