"""Batches of AutoBatch while they are filled: one batch (`OpenBatch`), and the batches that leave together
(`BatchGroup`).

A batch keeps its messages and their waiters while it is open, and encodes the messages once it is closed. Every message
sent passes through here, so adding one does as little as possible: unique ids and records are made for all messages at
once. Messages that have a tag and nothing more share their properties up to the unique id (`raptormq.protocol.batch`
draws the layout of a record)::

    head: size | 0 | 0 | flag | body length      the same for bodies of the same length
    body
    length and text of the properties, up to the unique id       the same for the whole batch
    unique id, end of the property                               cut from one text

A group has the batches for several queues of one broker. With few messages per queue, a request per batch costs more
than it carries. The batches of a group therefore share one timer, which starts with the first message of the group. A
batch that is full leaves its group and is sent by itself.

Neighbours: `producer.accumulator` decides what is added and when a batch or a group is closed, `producer.batch_sender`
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
"""Most batches of one request: the broker handles nothing else for some milliseconds."""
FULL_BATCHES_PER_GROUP = 16
"""Largest request, in full batches."""
MAX_GROUP_BYTES = 4 * 1024 * 1024
"""Largest request in bytes, whatever the size of a batch. The frame has room for one more message, for keys that are
written twice, and for what encryption adds.
"""

GroupKey = tuple[str, bool]
"""Broker and wait flag: messages that do not wait for the disk are not delayed by messages that do."""


class BatchGroup:
    """Batches that leave together when the timer of the group fires, in the order of their first messages.

    Args:
        key: broker and wait flag of the batches; None for a group of one batch, which no other batch may join.
    """

    __slots__ = ("batches", "key", "size", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, key: GroupKey | None) -> None:
        self.key = key
        self.batches: dict[OpenBatch, None] = {}
        self.size = 0
        """Bytes of all their messages."""


class BatchKey(NamedTuple):
    """What all messages of a batch have in common."""

    topic: str
    queue: MessageQueue | None
    tags: str | None
    wait_stored: bool
    sys_flag: int
    """How each body is compressed."""


_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


class Special(NamedTuple):
    """What a message has that is more than a tag."""

    flag: int
    properties: bytes
    """Up to the value of the unique id, which is the last."""
    own_id: str | None
    """The unique id that the application has set."""
    keys: tuple[str, ...]
    size: int
    """Bytes of the whole record."""


class OpenBatch:
    """Messages of one key that leave together.

    Args:
        key: what they have in common.
        id_length: characters of a unique id.

    Raises:
        MessageError: the tag is not valid.
    """

    __slots__ = (
        "_keys_chars",
        "_plain_properties",
        "_specials",
        "added",
        "bodies",
        "futures",
        "group",
        "key",
        "keys",
        "message_ids",
        "plain_overhead",
        "size",
        "waiters",
    )

    group: BatchGroup
    """The batches that it leaves with."""

    def __init__(self, key: BatchKey, id_length: int) -> None:
        self.key = key
        self.bodies: list[bytes] = []
        self.added = 0
        """Number of messages that were added; those whose senders have cancelled count as well."""
        self.futures = 0
        """Number of waiters that are futures, which may be cancelled."""
        self.waiters: list[Waiter | None] = []
        """Who gets the outcome of each message, in the order of the bodies. A waiter that has its outcome is None; the
        list is empty once all have.
        """
        self.message_ids: list[str] = []
        """Unique ids in the order of the bodies; empty while the batch is open."""
        self.keys: dict[str, None] = {}
        """The keys of all messages, in order."""
        self._keys_chars = 0
        self.size = 0
        """Bytes of the encoded messages; 0 once they are discarded."""
        self._specials: dict[int, Special] = {}
        self._plain_properties = plain_properties(key.tags, key.wait_stored)
        self.plain_overhead = OVERHEAD_BYTES + len(self._plain_properties) + id_length + len(PAIR_SEPARATOR)
        """Bytes that a message with a tag and nothing more takes besides its body."""

    def __len__(self) -> int:
        return len(self.bodies)

    def add(self, body: bytes, waiter: Waiter) -> int:
        """Add a message with a tag and nothing more; return its size in bytes."""
        size = self.plain_overhead + len(body)
        self.added += 1
        self.bodies.append(body)
        self.waiters.append(waiter)
        self.size += size
        return size

    def has_room_for(self, special: Special, max_bytes: int) -> bool:
        """Whether a message with properties of its own fits a batch of `max_bytes`."""
        return self.size + special.size <= max_bytes and self._keys_chars + _chars_of(special.keys) <= MAX_KEYS_CHARS

    def add_special(self, body: bytes, waiter: Waiter, special: Special) -> int:
        """Add a message with properties of its own and merge its keys into those of the batch; return its size in
        bytes.
        """
        self._specials[len(self.bodies)] = special
        self.added += 1
        self.keys.update(dict.fromkeys(special.keys))
        self._keys_chars += _chars_of(special.keys)
        self.bodies.append(body)
        self.waiters.append(waiter)
        self.size += special.size
        return special.size

    def close(self, ids: UniqueIdFactory, now_ms: int) -> None:
        """Remove the messages whose senders have cancelled and give the others their unique ids; `size` stays.

        A batch that was sent before keeps its ids: the broker may have stored it.
        """
        self.remove_cancelled()
        if not self.message_ids:
            self.assign_ids(ids.next_ids(now_ms, len(self.bodies)))

    def remove_cancelled(self) -> None:
        """Remove the messages whose senders have cancelled."""
        if self.futures and any(map(is_cancelled, self.waiters)):
            wanted = [index for index, waiter in enumerate(self.waiters) if not is_cancelled(waiter)]
            self._specials = {at: self._specials[index] for at, index in enumerate(wanted) if index in self._specials}
            self.bodies = [self.bodies[index] for index in wanted]
            self.waiters = [self.waiters[index] for index in wanted]
            self.message_ids = [self.message_ids[index] for index in wanted] if self.message_ids else []

    def is_awaited(self) -> bool:
        """Whether a sender of any message has not cancelled."""
        return not all(map(is_cancelled, self.waiters))

    def is_awaited_at(self, index: int) -> bool:
        """Whether the sender of one message has not cancelled and the batch is not completed."""
        return index < len(self.waiters) and not is_cancelled(self.waiters[index])

    def take_waiters(self) -> list[Waiter]:
        """Remove and return the waiters that have no outcome yet; the caller completes all of them."""
        waiters, self.waiters = self.waiters, []
        return [waiter for waiter in waiters if waiter is not None]

    def discard(self) -> int:
        """Drop the messages and return how many bytes they held."""
        size, self.size = self.size, 0
        self.bodies, self._specials = [], {}
        return size

    def complete(self, index: int, outcome: SendResult | BaseException) -> None:
        """Give the sender of one message its outcome, unless the whole batch is completed."""
        if index < len(self.waiters):
            waiter, self.waiters[index] = self.waiters[index], None
            if waiter is not None:
                complete(waiter, outcome)

    def assign_ids(self, fresh_ids: list[str]) -> None:
        """Give every message its unique id: the one that the application has set, or a fresh one."""
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
    """Characters of keys and of the separators between them."""
    return sum(map(len, keys)) + len(keys)
