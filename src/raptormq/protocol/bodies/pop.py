"""Bodies of POP consumption: checkpoints and acks in the revive log, batches of acks (200151) (``PopCheckPoint``,
``AckMsg``, ``BatchAckMsg``, ``BatchAckMessageRequestBody``).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import list_at
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object, loads_request

_NOT_ZERO = re.compile(rb"[^\0]", re.DOTALL)
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
MAX_POPPED = 32
"""Maximum number of messages of one checkpoint."""
_MAX_OFFSETS = 127
"""Limit of Apache RocketMQ, which stores the number of messages in one byte."""
_MAX_ACKS = 4_096
"""Maximum entries of one batch of acks. Handling them takes 50 ms."""
_MAX_BITS_BYTES = 64 * 1024
"""Maximum length of a bit set, which also has bits for messages that a filter has excluded."""


@dataclass(frozen=True, slots=True)
class CheckPoint:
    """Messages of one queue that one pop has returned. ``offsets`` is ascending; its first element may be greater than
    ``start_offset``.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    offsets: tuple[int, ...]
    broker_name: str
    suspended: bool = False
    """Whether the next delivery of the messages does not increase the number of deliveries."""

    @property
    def revive_time(self) -> int:
        """Time in ms since 1970 when unacknowledged messages become visible again."""
        return self.pop_time + self.invisible_time

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """The key by which acks refer to a checkpoint."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time

    def to_json(self) -> bytes:
        """Return the body of a record of the revive log."""
        diffs = [offset - self.start_offset for offset in self.offsets]
        value = {
            "bm": 0, "bn": self.broker_name, "c": self.group, "d": diffs, "it": self.invisible_time,
            "n": len(diffs), "pt": self.pop_time, "q": self.queue_id, "ro": 0, "so": self.start_offset,
            "t": self.topic,
        }  # fmt: skip
        return dumps(value | {"sp": True} if self.suspended else value)

    @classmethod
    def from_json(cls, data: bytes) -> CheckPoint:
        """Decode the body of a record of the revive log. Raises :class:`BodyError`."""
        value = loads_object(data)
        try:
            start, taken = int(value["so"]), int(value.get("bm") or 0)
            given = value.get("d") or range(int(value["n"]))
            if len(given) > _MAX_OFFSETS:
                raise ValueError(len(given))
            diffs = [int(diff) for diff in given]
            offsets = tuple(start + diff for index, diff in enumerate(diffs) if not taken >> index & 1)
            queue_id, pop_time, invisible = (int(value[name]) for name in ("q", "pt", "it"))
            numbers = queue_id, start, pop_time, invisible, *offsets
            if min(numbers) < 0 or max(numbers) >= 1 << 63:
                raise ValueError(numbers)
            broker_name = str(value.get("bn") or "")
            topic, group, suspended = str(value["t"]), str(value["c"]), value.get("sp") is True
            return cls(topic, group, queue_id, start, pop_time, invisible, offsets, broker_name, suspended)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise BodyError(f"not a checkpoint: {value!r:.80}") from error


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledged messages of one checkpoint."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    offsets: tuple[int, ...]
    broker_name: str = ""

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """The key of the checkpoint."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time

    @property
    def tag(self) -> str:
        """Tag of the record in the revive log."""
        return ACK_TAG if len(self.offsets) == 1 else BATCH_ACK_TAG

    def to_json(self) -> bytes:
        """Return the body of a record of the revive log."""
        value: dict[str, Any] = {
            "ao": self.offsets[0] if len(self.offsets) == 1 else -1, "bn": self.broker_name, "c": self.group,
            "pt": self.pop_time, "q": self.queue_id, "so": self.start_offset, "t": self.topic,
        }  # fmt: skip
        return dumps(value if len(self.offsets) == 1 else value | {"aol": list(self.offsets)})

    @classmethod
    def from_json(cls, data: bytes) -> Ack:
        """Decode the body of a record of the revive log. Raises :class:`BodyError`."""
        value = loads_object(data)
        try:
            offsets = tuple(int(offset) for offset in value.get("aol") or [value["ao"]])
            return cls(
                str(value["t"]), str(value["c"]), int(value["q"]), int(value["so"]), int(value["pt"]), offsets,
                str(value.get("bn") or ""),
            )  # fmt: skip
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise BodyError(f"not an acknowledgement: {value!r:.80}") from error


@dataclass(frozen=True, slots=True)
class BatchAck:
    """One entry of 200151; ``kind`` is the kind of the topic (:mod:`raptormq.protocol.pop_handle`)."""

    group: str
    topic: str
    kind: str
    queue_id: int
    revive_queue: int
    start_offset: int
    pop_time: int
    offsets: tuple[int, ...]


def decode_batch_acks(data: bytes) -> Sequence[BatchAck]:
    """Decode the body of 200151, where the offsets are a bit set that starts at ``so``. Raises :class:`BodyError`."""
    return [_batch_ack(value) for value in _rows(data)]


def batch_ack_names(data: bytes) -> set[tuple[str, str, str]]:
    """Return the groups, topics and kinds of topics in a body of 200151. Raises :class:`BodyError`."""
    return {_names(value) for value in _rows(data)}


def _rows(data: bytes) -> list[Any]:
    values = list_at(loads_request(data), "acks")
    if len(values) > _MAX_ACKS:
        raise BodyError(f"a batch of acknowledgements must not have more than {_MAX_ACKS} entries")
    return values


def _names(value: Any) -> tuple[str, str, str]:
    try:
        return str(value["c"]), str(value["t"]), str(value.get("r") or "0")
    except (AttributeError, KeyError, TypeError) as error:
        raise BodyError(f"not a batch of acknowledgements: {value!r:.80}") from error


def _batch_ack(value: Any) -> BatchAck:
    try:
        start = int(value["so"])
        offsets = tuple(start + index for index in _indices(base64.b64decode(value.get("b") or "", validate=True)))
        return BatchAck(*_names(value), int(value["q"]), int(value["rq"]), start, int(value["pt"]), offsets)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, binascii.Error) as error:
        raise BodyError(f"not a batch of acknowledgements: {value!r:.80}") from error


def _indices(bits: bytes) -> list[int]:
    """Return the positions of the set bits. Raises :class:`ValueError` for more bits than a pop can have returned."""
    count = int.from_bytes(bits, "little").bit_count()
    if len(bits) > _MAX_BITS_BYTES or count > _MAX_OFFSETS:
        raise ValueError(count)
    found = ((match.start(), match[0][0]) for match in _NOT_ZERO.finditer(bits))
    return [at * 8 + bit for at, byte in found for bit in range(8) if byte >> bit & 1]
