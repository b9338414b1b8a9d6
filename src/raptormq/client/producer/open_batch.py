"""Open batches of AutoBatch (`OpenBatch`), and groups of batches that are sent together (`BatchGroup`).

A batch stores its messages and their waiters while it is open, and encodes the messages when it is closed. Adding a
message is a hot path, so unique ids and records are created for all messages together. Messages with only a tag share
their properties up to the unique id (`raptormq.protocol.batch` describes the layout of a record)::

    head: size | 0 | 0 | flag | body length      the same for bodies of the same length
    body
    length and text of the properties, up to the unique id       the same for the whole batch
    unique id, end of the property                               cut from one text

A group contains the batches for several queues of one broker, because one request per small batch is inefficient. The
batches of a group share one timer, which starts with the first message of the group. A full batch leaves its group and
is sent individually.

See also: `producer.accumulator` decides what is added and when a batch or a group is closed, `producer.batch_sender`
sends it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import NamedTuple

from raptormq.client.message import MAX_KEYS_CHARS, plain_properties
from raptormq.client.producer.callbacks import Waiter, complete, is_cancelled
from raptormq.client.results import SendResult
from raptormq.protocol.batch import OVERHEAD_BYTES, encode_batch
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import PAIR_SEPARATOR

MAX_GROUP_BATCHES = 1024
"""Maximum number of batches per request, because a large request blocks the broker for some milliseconds."""
FULL_BATCHES_PER_GROUP = 16
"""Maximum size of a request, in full batches."""
MAX_GROUP_BYTES = 4 * 1024 * 1024
"""Maximum size of a request in bytes. The frame has room for one more message, for keys that are written twice, and for
the overhead of encryption.
"""

GroupKey = tuple[str, bool]
"""Key of a group: broker and wait flag, so that messages that do not wait for the flush are not delayed."""


class BatchGroup:
    """Batches that are sent together when the timer of the group fires, in the order of their first messages.

    Args:
        key: broker and wait flag of the batches; None for a group with a single batch.
    """

    __slots__ = ("batches", "key", "size", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, key: GroupKey | None) -> None:
        self.key = key
        self.batches: dict[OpenBatch, None] = {}
        self.size = 0
        """Bytes of all messages in the group; not counted without a key, because the only batch has a lower limit."""


class BatchKey(NamedTuple):
    """Common values of all messages of a batch."""

    topic: str
    queue: MessageQueue | None
    tags: str | None
    wait_stored: bool
    sys_flag: int
    """Compression of each body."""


_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


class Special(NamedTuple):
    """Additional fields of a message that has more than a tag."""

    flag: int
    properties: bytes
    """Encoded properties up to the value of the unique id, which is the last."""
    own_id: str | None
    """Unique id set by the application."""
    keys: tuple[str, ...]
    size: int
    """Bytes of the whole record."""


class OpenBatch:
    """A batch of messages with the same key.

    Args:
        key: common values of the messages.
        id_length: characters of a unique id.

    Raises:
        MessageError: the tag is not valid.
    """

    __slots__ = (
        "_keys_chars",
        "_plain_properties",
        "_specials",
        "bodies",
        "cancelled",
        "deadlines",
        "expiry",
        "group",
        "key",
        "keys",
        "message_ids",
        "plain_overhead",
        "size",
        "waiters",
    )

    group: BatchGroup
    """The group of the batch."""

    def __init__(self, key: BatchKey, id_length: int) -> None:
        self.key = key
        self.bodies: list[bytes] = []
        self.cancelled = 0
        """Number of cancelled messages that were removed. Their bytes count until the batch is discarded."""
        self.deadlines: dict[int, float] = {}
        """Deadlines (loop time) of the messages that have waited before they were added, by index."""
        self.expiry: asyncio.TimerHandle | None = None
        """Timer of the first deadline."""
        self.waiters: list[Waiter | None] = []
        """Waiter of each message, in the order of the bodies. A completed waiter is None; the list is empty when all
        are completed.
        """
        self.message_ids: list[str] = []
        """Unique ids in the order of the bodies; empty while the batch is open."""
        self.keys: dict[str, None] = {}
        """The keys of all messages, in order."""
        self._keys_chars = 0
        self.size = 0
        """Bytes of the encoded messages; 0 after they were discarded."""
        self._specials: dict[int, Special] = {}
        self._plain_properties = plain_properties(key.tags, key.wait_stored)
        self.plain_overhead = OVERHEAD_BYTES + len(self._plain_properties) + id_length + len(PAIR_SEPARATOR)
        """Overhead in bytes of a message with only a tag."""

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def is_closed(self) -> bool:
        """Whether the messages have their ids, so that they may have been sent."""
        return bool(self.message_ids)

    def add(self, body: bytes, waiter: Waiter) -> int:
        """Add a message with only a tag. Return its size in bytes."""
        size = self.plain_overhead + len(body)
        self.bodies.append(body)
        self.waiters.append(waiter)
        self.size += size
        return size

    def has_room_for(self, special: Special, max_bytes: int) -> bool:
        """Return whether a message with its own properties fits into a batch of `max_bytes`."""
        return self.size + special.size <= max_bytes and self._keys_chars + _chars_of(special.keys) <= MAX_KEYS_CHARS

    def add_special(self, body: bytes, waiter: Waiter, special: Special) -> int:
        """Add a message with its own properties, and merge its keys into those of the batch. Return its size in
        bytes."""
        self._specials[len(self.bodies)] = special
        self.keys.update(dict.fromkeys(special.keys))
        self._keys_chars += _chars_of(special.keys)
        self.bodies.append(body)
        self.waiters.append(waiter)
        self.size += special.size
        return special.size

    def close(self, ids: UniqueIdFactory, now_ms: int) -> None:
        """Remove cancelled messages and assign unique ids to the others. `size` is not changed.

        A batch that was sent before keeps its ids: the broker may have stored it.
        """
        self.remove_cancelled()
        if not self.message_ids:
            self.assign_ids(ids.next_ids(now_ms, len(self.bodies)))

    def remove_cancelled(self) -> None:
        """Remove cancelled messages."""
        # Only futures can be cancelled. `callable` tells them from callbacks in a tenth of the time.
        if not all(map(callable, self.waiters)) and any(map(is_cancelled, self.waiters)):
            wanted = [index for index, waiter in enumerate(self.waiters) if not is_cancelled(waiter)]
            self.cancelled += len(self.bodies) - len(wanted)
            self._specials = {at: self._specials[index] for at, index in enumerate(wanted) if index in self._specials}
            self.deadlines = {at: self.deadlines[index] for at, index in enumerate(wanted) if index in self.deadlines}
            self.bodies = [self.bodies[index] for index in wanted]
            self.waiters = [self.waiters[index] for index in wanted]
            self.message_ids = [self.message_ids[index] for index in wanted] if self.message_ids else []

    def take_expired(self, now: float) -> list[Waiter]:
        """Remove and return the waiters without an outcome whose deadlines have passed. Their messages are cancelled:
        they are not sent, or not again.
        """
        expired: list[Waiter] = []
        for index in [index for index, deadline in self.deadlines.items() if deadline <= now]:
            del self.deadlines[index]
            waiter = self.waiters[index] if index < len(self.waiters) else None
            if waiter is not None and not is_cancelled(waiter):
                cancelled: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
                cancelled.cancel()
                self.waiters[index] = cancelled
                expired.append(waiter)
        return expired

    def is_awaited(self) -> bool:
        """Return whether any message is not cancelled."""
        return not all(map(is_cancelled, self.waiters))

    def is_awaited_at(self, index: int) -> bool:
        """Return whether a message is neither cancelled nor completed."""
        return index < len(self.waiters) and not is_cancelled(self.waiters[index])

    def take_waiters(self) -> list[Waiter]:
        """Remove and return the waiters without an outcome. The caller must complete all of them."""
        waiters, self.waiters = self.waiters, []
        return [waiter for waiter in waiters if waiter is not None]

    def discard(self) -> tuple[int, int]:
        """Drop the messages. Return their number and their size in bytes, with the cancelled ones."""
        messages, size = len(self.bodies) + self.cancelled, self.size
        self.cancelled = self.size = 0
        self.bodies, self._specials = [], {}
        return messages, size

    def complete(self, index: int, outcome: SendResult | BaseException) -> None:
        """Complete the waiter of one message, unless the whole batch is completed."""
        if index < len(self.waiters):
            waiter, self.waiters[index] = self.waiters[index], None
            if waiter is not None:
                complete(waiter, outcome)

    def assign_ids(self, fresh_ids: list[str]) -> None:
        """Assign a unique id to every message: the id set by the application, or a new one."""
        self.message_ids = fresh_ids
        for index, special in self._specials.items():
            if special.own_id is not None:
                self.message_ids[index] = special.own_id

    def records(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield flag, body and properties of every message of the closed batch."""
        plain = Special(0, self._plain_properties, None, (), 0)
        for index, (body, message_id) in enumerate(zip(self.bodies, self.message_ids, strict=True)):
            special = self._specials.get(index, plain)
            yield special.flag, body, special.properties + f"{message_id}{PAIR_SEPARATOR}".encode()

    def only_record(self) -> tuple[int, bytes, str]:
        """Return flag, body and properties of the only message of the closed batch."""
        [(flag, body, properties)] = self.records()
        return flag, body, properties.decode()

    def encode(self) -> bytes:
        """Return the messages of the closed batch as the body of one request."""
        if self._specials:
            return encode_batch(self.records())
        texts = (PAIR_SEPARATOR.join(self.message_ids) + PAIR_SEPARATOR).encode()
        width = len(texts) // len(self.message_ids)
        properties = _SHORT.pack(len(self._plain_properties) + width) + self._plain_properties
        pieces: list[bytes] = []
        head, head_length, position = b"", -1, 0
        for body in self.bodies:
            length = len(body)
            if length != head_length:
                head, head_length = _HEAD.pack(self.plain_overhead + length, 0, 0, 0, length), length
            pieces += (head, body, properties, texts[position : position + width])
            position += width
        return b"".join(pieces)


def _chars_of(keys: tuple[str, ...]) -> int:
    """Return the total length of keys with their separators."""
    return sum(map(len, keys)) + len(keys)
