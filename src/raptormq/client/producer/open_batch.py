"""Batches of AutoBatch while they fill: one batch (`OpenBatch`), and several that leave together (`BrokerBatchGroup`).

An open batch keeps what waits while it fills, and makes the bytes of its messages once it leaves. There is an entry per
message sent, so as little as can be is done while the batch fills: unique ids and records are made for all messages
together. Messages with a tag and no more have the same properties up to the unique id (the layout of a record is drawn
in `raptormq.protocol.batch`)::

    head: size | 0 | 0 | flag | body length      the same while bodies have the same length
    body
    length and text of the properties, up to the unique id       the same for the whole batch
    unique id, end of the property                               cut from one text

A shipment has the open batches of several queues of one broker that will leave as one request. With a queue of its own
for every few messages, a batch per queue is too small to be worth a request. Batches that belong to a queue therefore
share the age of the oldest message among them; a batch that fills up before leaves by itself.

Neighbours: `producer.accumulator` decides what goes in and when a batch or a shipment leaves, `producer.batch_sender`
sends it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import NamedTuple

from raptormq.client.message import plain_properties
from raptormq.client.producer.callbacks import Waiter, is_given_up, tell
from raptormq.client.results import SendResult
from raptormq.protocol.batch import OVERHEAD_BYTES, encode_batch
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import PAIR_SEPARATOR

MAX_BATCHES = 1024
"""Batches of one request at most: it keeps the broker from everything else for some milliseconds."""
BATCHES_WORTH = 16
"""Bytes of one request at most, in full batches."""
MAX_SHIPMENT_BYTES = 4 * 1024 * 1024
"""And however large these are. One message more, keys named twice and what encryption adds fit a frame even so."""

ShipmentKey = tuple[str, bool]
"""Broker and wait flag: who does not wait for the disk is not held up by those who do."""


class BrokerBatchGroup:
    """Batches for one broker, at most one of each key, in the order of their first messages."""

    __slots__ = ("batches", "key", "size", "timer")

    def __init__(self, key: ShipmentKey, timer: asyncio.TimerHandle) -> None:
        self.key = key
        self.timer = timer
        self.batches: dict[OpenBatch, None] = {}
        self.size = 0
        """Bytes of all their messages."""


BatchKey = tuple[str, MessageQueue | None, str | None, bool, int]
"""Topic, queue, tag, wait flag and how bodies are compressed (sysFlag): what all messages of a batch have in common."""

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


class Special(NamedTuple):
    """What a message has that is more than a tag."""

    flag: int
    properties: bytes
    """Up to the value of the unique id, which is the last."""
    own_id: str | None
    """The unique id that the application gave it."""

    def properties_bytes(self, id_length: int) -> int:
        """Return the bytes of all properties; an id that is made has so many."""
        own = id_length if self.own_id is None else len(self.own_id.encode())
        return len(self.properties) + own + len(PAIR_SEPARATOR)


class OpenBatch:
    """Messages of one key that leave together.

    Args:
        key: what they have in common.
        id_length: characters of a unique id.

    Raises:
        MessageError: the tag is none.
    """

    __slots__ = (
        "_plain_properties",
        "_specials",
        "batch_group",
        "bodies",
        "futures",
        "key",
        "keys",
        "keys_chars",
        "message_ids",
        "plain_overhead",
        "size",
        "timer",
        "waiters",
    )

    def __init__(self, key: BatchKey, id_length: int) -> None:
        self.key = key
        self.bodies: list[bytes] = []
        self.futures = 0
        """Those of the waiters that may be cancelled."""
        self.waiters: list[Waiter | None] = []
        """Who is to be told, in the order of the bodies; None who was, nobody once all are."""
        self.message_ids: list[str] = []
        """Empty until the batch is sealed."""
        self.keys: dict[str, None] = {}
        """The keys of all messages, in order."""
        self.keys_chars = 0
        self.size = 0
        """Bytes of all that was added, as it travels; 0 once it is released."""
        self.timer: asyncio.TimerHandle | None = None
        """When it leaves; None in a `BrokerBatchGroup`, which has one for all."""
        self.batch_group: BrokerBatchGroup | None = None
        self._specials: dict[int, Special] = {}
        self._plain_properties = plain_properties(key[2], key[3])
        self.plain_overhead = OVERHEAD_BYTES + len(self._plain_properties) + id_length + len(PAIR_SEPARATOR)
        """What a message with a tag and no more takes besides its body."""

    def __len__(self) -> int:
        return len(self.bodies)

    def add(self, body: bytes, waiter: Waiter) -> int:
        """Add a message with a tag and no more; return its size."""
        size = self.plain_overhead + len(body)
        self.bodies.append(body)
        self.waiters.append(waiter)
        self.size += size
        return size

    def add_special(self, body: bytes, waiter: Waiter, special: Special, keys: tuple[str, ...], size: int) -> None:
        """Add a message with properties of its own and of so many bytes in all; its keys are united with those of the
        others.
        """
        self._specials[len(self.bodies)] = special
        self.keys.update(dict.fromkeys(keys))
        self.keys_chars += chars_of(keys)
        self.bodies.append(body)
        self.waiters.append(waiter)
        self.size += size

    def seal(self, ids: UniqueIdFactory, now_ms: int) -> None:
        """Leave out the messages whose senders gave up and give the others their unique ids; `size` stays.

        Those that have been on their way before keep theirs: they may have been stored.
        """
        self.leave_out_cancelled()
        if not self.message_ids:
            self.name(ids.next_ids(now_ms, len(self.bodies)))

    def leave_out_cancelled(self) -> None:
        """Leave out the messages whose senders gave up."""
        if self.futures and any(map(is_given_up, self.waiters)):
            wanted = [index for index, waiter in enumerate(self.waiters) if not is_given_up(waiter)]
            self._specials = {at: self._specials[index] for at, index in enumerate(wanted) if index in self._specials}
            self.bodies = [self.bodies[index] for index in wanted]
            self.waiters = [self.waiters[index] for index in wanted]
            self.message_ids = [self.message_ids[index] for index in wanted] if self.message_ids else []

    def is_wanted(self) -> bool:
        """Whether anybody still wants to know what becomes of it."""
        return not all(map(is_given_up, self.waiters))

    def is_wanted_at(self, index: int) -> bool:
        """Whether the sender of one message still wants to know, unless all have been told."""
        return index < len(self.waiters) and not is_given_up(self.waiters[index])

    def take_waiters(self) -> list[Waiter]:
        """Return who is not told yet; the caller tells all of them."""
        waiters, self.waiters = self.waiters, []
        return [waiter for waiter in waiters if waiter is not None]

    def release(self) -> int:
        """Let go of the messages, which will not be sent any more, and return how many bytes they held."""
        size, self.size = self.size, 0
        self.bodies, self._specials = [], {}
        return size

    def tell(self, index: int, outcome: SendResult | BaseException) -> None:
        """Tell the sender of one message, unless all have been told."""
        if index < len(self.waiters):
            waiter, self.waiters[index] = self.waiters[index], None
            if waiter is not None:
                tell(waiter, outcome)

    def name(self, fresh_ids: list[str]) -> None:
        """Give the messages their unique ids, their own or fresh ones."""
        self.message_ids = fresh_ids
        for index, special in self._specials.items():
            if special.own_id is not None:
                self.message_ids[index] = special.own_id

    def records(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield flag, body and properties of every message of the sealed batch."""
        plain = Special(0, self._plain_properties, None)
        for index, (body, message_id) in enumerate(zip(self.bodies, self.message_ids, strict=True)):
            special = self._specials.get(index, plain)
            yield special.flag, body, special.properties + f"{message_id}{PAIR_SEPARATOR}".encode()

    def only_record(self) -> tuple[int, bytes, str]:
        """Return flag, body and properties of the only message of the sealed batch."""
        [(flag, body, properties)] = self.records()
        return flag, body, properties.decode()

    def encode(self) -> bytes:
        """Return the messages of the sealed batch as the body of one request."""
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


def chars_of(keys: tuple[str, ...]) -> int:
    """Characters of keys and of the separators between them."""
    return sum(map(len, keys)) + len(keys)
