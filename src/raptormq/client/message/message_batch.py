"""`MessageBatch`: messages of one queue that are delivered together and decoded on access.

There are three kinds. `InnerBatch` is a batch as it was stored; only the positions of its messages are known until they
are accessed. `PlainRecords` and `DecodedMessages` are messages that were stored one by one and came with one pull:
plain ones are decoded on access, compressed or encrypted ones were decoded before.
Neighbours: `message.decoding` creates batches, `consumer.listener_pool` passes them to listeners. Source: RIP-26, whose
inner batches the Java client always unpacks. There, all messages have the position and the offset id of the batch;
here, they have those that RaptorMQ's brokers give them.
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
        """The topic of the messages; cheap."""
        return self[0].topic

    @property
    def born_timestamp(self) -> int:
        """When the first message was sent, in milliseconds since 1970; cheap for a batch stored whole."""
        return self[0].born_timestamp

    @property
    @abc.abstractmethod
    def offsets(self) -> Sequence[int]:
        """The queue offset of every message, with gaps where tags or the start of a pull have left messages out."""

    @property
    @abc.abstractmethod
    def body_bytes(self) -> int:
        """Length of all bodies together, or a little more; cheap."""

    @abc.abstractmethod
    def bodies(self) -> Iterator[bytes | memoryview]:
        """Yield the decompressed bodies, without copying those of an inner batch and without decoding properties."""

    @abc.abstractmethod
    def with_tags(self, tags: Iterable[str]) -> MessageBatch | None:
        """Return the messages that have one of the tags; `None` when none has."""

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
    """Messages that were stored one by one."""

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
    """Messages that were stored one by one, neither compressed nor encrypted.

    Args:
        data: the body of the pull result.
        spans: positions of the records, at least one.
        queue: the queue that they were pulled from.
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
    """A batch that is stored whole, or the part of it that a consumer wants.

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
        # Text that is not UTF-8 was sent like that; Java replaces it too, and an error this late would not help.
        return decode_properties(str(text, "utf-8", "replace"))


def stored_message(record: StoredMessage, body: bytes, properties: dict[str, str], queue: MessageQueue) -> MessageExt:
    """Return a message that was stored by itself, with its plain body."""
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
