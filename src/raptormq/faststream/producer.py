"""Encodes values and sends them with the client's producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from raptormq.client import Message, MessageExt, Producer, SendResult
from raptormq.faststream.message import CONTENT_TYPE, CORRELATION_ID, decode, parse_message
from raptormq.faststream.response import RaptorPublishCommand

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.types import AsyncCallable, CustomCallable


class RaptorProducer(ProducerProto[RaptorPublishCommand]):
    """Publishes the commands of one broker."""

    _parser: AsyncCallable
    _decoder: AsyncCallable

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode)
        self.codec: CodecProto = DefaultCodec()
        self._serializer: SerializerProto | None = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer, serializer: SerializerProto | None, codec: CodecProto | None) -> None:
        """Set the started producer that sends."""
        self._producer = producer
        self._serializer = serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Remove the producer; later sends raise `IncorrectState`."""
        self._producer = None

    async def publish(self, cmd: RaptorPublishCommand) -> SendResult:
        """Send a message, or the reply to one. Raises as :meth:`raptormq.client.Producer.send`."""
        message = await as_message(cmd, self.codec, self._serializer)
        producer = self._connected()
        if cmd.request is not None:
            return await producer.reply(cmd.request, message.body, properties=message.properties)
        return await producer.send(message, key=cmd.key, timeout=cmd.timeout)

    async def request(self, cmd: RaptorPublishCommand) -> MessageExt:
        """Send a message and return the reply. Raises as :meth:`raptormq.client.Producer.request`."""
        message = await as_message(cmd, self.codec, self._serializer)
        return await self._connected().request(message, key=cmd.key, timeout=cmd.timeout)

    async def publish_batch(self, cmd: RaptorPublishCommand) -> Any:
        """Not supported: producers merge concurrent messages by themselves (``ProducerConfig.auto_batch``)."""
        raise FeatureNotSupportedException("publish messages one by one: auto_batch merges them into batches")

    def _connected(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("the broker is not connected: start it, or await its connect()")
        return self._producer


async def as_message(cmd: RaptorPublishCommand, codec: CodecProto, serializer: SerializerProto | None) -> Message:
    """Return the message of a command."""
    body, content_type = await codec.encode(cmd.body, serializer)
    properties = {name: str(value) for name, value in cmd.headers.items()}
    if content_type:
        properties.setdefault(CONTENT_TYPE, content_type)
    if cmd.correlation_id:
        properties.setdefault(CORRELATION_ID, cmd.correlation_id)
    return Message(cmd.destination, body, cmd.tag, cmd.keys, properties, delay=cmd.delay)
