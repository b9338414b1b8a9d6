"""`MessageBatch`: messages of one queue that are delivered together and decoded on access.

There are three kinds. `InnerBatch` is a batch that is stored whole; its messages are decoded on access. `PlainRecords`
and `DecodedMessages` are individually stored messages of one pull: plain ones are decoded on access, compressed or
encrypted ones were decoded before. See also: `message.decoding` creates batches, `consumer.listener_pool` passes them
to listeners. Source: RIP-26. In the Java client all messages of an inner batch have the position and the offset id of
the batch; here they have those that RaptorMQ's brokers assign.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from raptormq.protocol import properties as names
from raptormq.protocol.batch_spans import MessageSpans
from raptormq.protocol.inner_batch import inner_message_offset
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage, decode_view
from raptormq.protocol.record_spans import BODY_AT, RecordSpan


class MessageBatch(Sequence[MessageExt], abc.ABC):
    """Messages of one queue in the order of their offsets; at least one."""

    __slots__ = ("queue",)

    queue: MessageQueue

    @property
    def topic(self) -> str:
        """Topic of the messages, without decoding."""
        return self[0].topic

    @property
    def born_timestamp(self) -> int:
        """Born timestamp of the first message, in ms since 1970; without decoding for a batch that is stored whole."""
        return self[0].born_timestamp

    @property
    @abc.abstractmethod
    def offsets(self) -> Sequence[int]:
        """Queue offsets of all messages, with gaps for messages excluded by tags or by the start of the pull."""

    @property
    @abc.abstractmethod
    def body_bytes(self) -> int:
        """Approximate total size of the bodies, without decoding; never too small."""

    @abc.abstractmethod
    def bodies(self) -> Iterator[bytes | memoryview]:
        """Yield the decompressed bodies, without decoding properties; bodies of an inner batch are not copied."""

    @abc.abstractmethod
    def with_tags(self, tags: Iterable[str]) -> MessageBatch | None:
        """Return the messages with one of the tags; None if there are none."""

    @abc.abstractmethod
    def _message(self, index: int) -> MessageExt:
        """Return one message; `index` is in bounds."""

    @overload
    def __getitem__(self, index: int) -> MessageExt: ...

    @overload
    def __getitem__(self, index: slice) -> list[MessageExt]: ...

    def __getitem__(self, index: int | slice) -> MessageExt | list[MessageExt]:
        if isinstance(index, slice):
            return [self._message(each) for each in range(*index.indices(len(self)))]
        return self._message(range(len(self))[index])

    def __iter__(self) -> Iterator[MessageExt]:
        return map(self._message, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self.queue} from offset {self.offsets[0]}>"


class DecodedMessages(MessageBatch):
    """Individually stored messages."""

    __slots__ = ("_messages",)

    def __init__(self, messages: Sequence[MessageExt]) -> None:
        self.queue = messages[0].queue
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def offsets(self) -> Sequence[int]:
        return [message.queue_offset for message in self._messages]

    @property
    def body_bytes(self) -> int:
        return sum(len(message.body) for message in self._messages)

    def bodies(self) -> Iterator[bytes | memoryview]:
        return (message.body for message in self._messages)

    def with_tags(self, tags: Iterable[str]) -> DecodedMessages | None:
        wanted = frozenset(tags)
        chosen = [message for message in self._messages if message.tags in wanted]
        return DecodedMessages(chosen) if chosen else None

    def _message(self, index: int) -> MessageExt:
        return self._messages[index]


class PlainRecords(MessageBatch):
    """Individually stored messages that are neither compressed nor encrypted.

    Args:
        data: the body of the pull result.
        spans: positions of the records, at least one.
        queue: the queue that the records were pulled from.
    """

    __slots__ = ("_data", "_spans")

    def __init__(self, data: memoryview, spans: Sequence[RecordSpan], queue: MessageQueue) -> None:
        self.queue = queue
        self._data = data
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def offsets(self) -> Sequence[int]:
        return [offset for offset, _, _, _ in self._spans]

    @property
    def body_bytes(self) -> int:
        return self._spans[-1][3] - self._spans[0][1]

    def bodies(self) -> Iterator[bytes | memoryview]:
        data = self._data
        return (data[start + BODY_AT : body_end] for _, start, body_end, _ in self._spans)

    def with_tags(self, tags: Iterable[str]) -> DecodedMessages | None:
        return DecodedMessages(list(self)).with_tags(tags)

    def _message(self, index: int) -> MessageExt:
        record, body = decode_view(self._data, self._spans[index][1])
        return stored_message(record, bytes(body), decode_properties(record.properties), self.queue)


class InnerBatch(MessageBatch):
    """A batch that is stored whole, or a selection of its messages.

    Args:
        record: the record with the batch; its body is not used.
        data: the decompressed body.
        spans: positions of the wanted messages in `data`, at least one.
        indexes: indexes of these messages in the whole batch.
        queue: the queue that the batch was pulled from.
        key_id: the key that the batch was encrypted with; its messages have it as a property.
    """

    __slots__ = ("_data", "_indexes", "_key_id", "_record", "_spans")

    def __init__(
        self,
        record: StoredMessage,
        data: memoryview,
        spans: MessageSpans,
        indexes: Sequence[int],
        queue: MessageQueue,
        key_id: str | None = None,
    ) -> None:
        self.queue = queue
        self._record = record
        self._data = data
        self._spans = spans
        self._indexes = indexes
        self._key_id = key_id

    def __len__(self) -> int:
        return len(self._indexes)

    @property
    def topic(self) -> str:
        return self._record.topic

    @property
    def born_timestamp(self) -> int:
        return self._record.born_timestamp

    @property
    def offsets(self) -> Sequence[int]:
        base, indexes = self._record.queue_offset, self._indexes
        if isinstance(indexes, range):
            return range(base + indexes.start, base + indexes.stop)
        return [base + number for number in indexes]

    @property
    def body_bytes(self) -> int:
        return len(self._data)

    def bodies(self) -> Iterator[bytes | memoryview]:
        return map(self._data.__getitem__, self._spans.bodies)

    def with_tags(self, tags: Iterable[str]) -> InnerBatch | None:
        wanted = frozenset(tags)
        chosen = [index for index in range(len(self)) if self._properties(index).get(names.TAGS) in wanted]
        if not chosen:
            return None
        indexes = [self._indexes[index] for index in chosen]
        return InnerBatch(self._record, self._data, self._spans.select(chosen), indexes, self.queue, self._key_id)

    def _message(self, index: int) -> MessageExt:
        spans, record = self._spans, self._record
        properties = self._properties(index)
        if self._key_id is not None:
            properties[names.ENCRYPTION_KEY_ID] = self._key_id
        number = self._indexes[index]
        place = inner_message_offset(record.physical_offset, record.total_size, number)
        stored_at = offset_id(record.store_host, place)
        return MessageExt(
            record.topic,
            bytes(self._data[spans.bodies[index]]),
            properties,
            self.queue,
            record.queue_offset + number,
            place,
            properties.get(names.UNIQUE_KEY, stored_at),
            stored_at,
            record.born_timestamp,
            record.store_timestamp,
            0,
            spans.flags[index],
            record.sys_flag,
        )

    def _properties(self, index: int) -> dict[str, str]:
        text = self._data[self._spans.body_ends[index] + 2 : self._spans.ends[index]]
        # Invalid UTF-8 is replaced, like in Java, because it was sent in that form.
        return decode_properties(str(text, "utf-8", "replace"))


def stored_message(record: StoredMessage, body: bytes, properties: dict[str, str], queue: MessageQueue) -> MessageExt:
    """Return an individually stored message with its decoded body."""
    stored_at = offset_id(record.store_host, record.physical_offset)
    return MessageExt(
        record.topic,
        body,
        properties,
        queue,
        record.queue_offset,
        record.physical_offset,
        properties.get(names.UNIQUE_KEY, stored_at),
        stored_at,
        record.born_timestamp,
        record.store_timestamp,
        record.reconsume_times,
        record.flag,
        record.sys_flag,
    )
