"""Mutated batches of every form: each send gets the specified response, every kind of reader reaches the end of each
queue, and a start after a crash finds the same messages.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from raptormq.client.message.decoding import decode_batches
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.queue_batches import Part, PartKind, decode_part_responses, encode_parts
from tests.broker.batches.batch_peer import create_topic, old_pull
from tests.broker.harness import Peer, connected, messages, running, send_fields
from tests.storage.memory_filesystem import MemoryFileSystem

TEXTS = (
    b"", b"UNIQ_KEY\x01U\x02", b"TAGS\x01A\x02", b"INNER_NUM\x012\x02", b"a\x01\xff\x02", b"\x02\x02\x01",
    "KEYS\x01a b\x02UNIQ_KEY\x01ä\x02".encode(),
)  # fmt: skip
COMMON = (
    "TAGS\x01A\x02",
    "KEYS\x01" + "k" * 33_000 + "\x02",
    "WAIT\x01false\x02",
    "\x01\x02\x02",
    "INNER_BASE\x0155\x02",
)
PACKED: tuple[tuple[int, Callable[[bytes], bytes]], ...] = (
    (0x301, zlib.compress), (0x101, lz4.frame.compress), (0x201, zstandard.compress),
)  # fmt: skip
TAKEN_OR_REFUSED = {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER}
SENDS = 400


class AnyKey:
    """A key source that has every key."""

    def current(self) -> tuple[str, bytes]:
        return "k1", bytes(16)

    def key(self, key_id: str) -> bytes:
        del key_id
        return bytes(16)


class Bender:
    """Creates batches that are almost valid."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def bent(self, data: bytes) -> bytes:
        chance, found = self.chance, bytearray(data)
        for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
            at = chance.randrange(len(found) + 1)
            kind = chance.randrange(4)
            if kind == 0 and at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                del found[at : at + chance.randrange(1, 9)]
            elif kind == 2:
                found[at:at] = chance.randbytes(chance.randrange(1, 9))
            else:
                found[at : at + 4] = chance.choice((b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
        return bytes(found)

    def batch(self) -> tuple[bytes, int, str]:
        """Return body, flags and properties."""
        chance = self.chance
        count = chance.choice((1, 2, 3, 40))
        sizes = [chance.choice((0, 1, 300)) for _ in range(count)]
        body = self.bent(
            encode_batch(
                [(0, chance.randbytes(size), chance.choice(TEXTS if count < 40 else TEXTS[:3])) for size in sizes]
            )
        )
        flags, text = 0, "UNIQ_KEY\x01B\x02" if chance.random() < 0.95 else ""
        form = chance.randrange(5)
        if form < len(PACKED):
            flags, pack = PACKED[form]
            body = self.bent(pack(body))
        elif form == len(PACKED):
            body = self.bent(encrypt_body(body, chance.choice((0, 0x301, 0x999)), "k1", bytes(16), bytes(12)))
            text += "__ENCRYPTION_KEY\x01k1\x02"
        if chance.random() < 0.1:
            flags ^= 1 << chance.randrange(12)
        flags |= INNER_BATCH if chance.random() < 0.8 else 0
        said = chance.choice((count, count, count, count + 1, 0, -1, 32_768, "x"))
        text += f"INNER_NUM\x01{said}\x02" if form <= len(PACKED) or chance.random() < 0.5 else ""
        return body, flags, text + (chance.choice(COMMON) if chance.random() < 0.1 else "")

    async def send(self, peer: Peer) -> set[int]:
        """Send one batch, or several in one request. Return the codes."""
        chance = self.chance
        kind = chance.randrange(3)
        if kind == 2:
            parts = []
            for _ in range(chance.randrange(1, 5)):
                body, flags, text = self.batch()
                queue_id = chance.choice((0, 1, 1, 2, 99, -5))
                parts.append(
                    Part(chance.choice(list(PartKind)), chance.randrange(2), queue_id, flags, 0, text[:30_000], body)
                )
            common = {"a": "p", "b": "s;b", "c": "TBW102", "d": 4, "g": 1}
            answer = await peer.call(RequestCode.SEND_QUEUE_BATCHES, common, encode_parts(parts))
            assert answer.code == 0
            return {each.code for each in decode_part_responses(answer.body, len(parts))}
        body, flags, text = self.batch()
        fields: dict[str, object] = send_fields(chance.choice("bs"), chance.randrange(2), text) | {"f": flags}
        if kind:
            return {(await peer.call(RequestCode.SEND_MESSAGE_V2, fields, body)).code}
        return {(await peer.call(RequestCode.SEND_BATCH_MESSAGE, fields | {"m": "true"}, body)).code}


async def read_whole(peer: Peer, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """Read like the Python client. Unreadable messages are skipped, but never a whole record."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while (answer := await peer.pull(topic, offset, queue_id)).code != ResponseCode.PULL_NOT_FOUND:
        queue = MessageQueue(topic, "broker-a", queue_id)
        batches = decode_batches(answer.body, queue, offset, unreadable=lambda *_: True, keys=AnyKey())
        found += [(message.queue_offset, message.body) for batch in batches for message in batch]
        offset = gone_on(offset, int(answer.ext_fields["nextBeginOffset"]))
    return found


async def read_singly(peer: Peer, topic: str, queue_id: int, **more: object) -> list[tuple[int, bytes]]:
    """Read like an old client, or one with a filter. Continue after encrypted messages."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while (answer := await old_pull(peer, offset, queue_id, topic=topic, **more)).code != ResponseCode.PULL_NOT_FOUND:
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            last = re.search(r"messages \d+ to (\d+) of the queue are encrypted", str(answer.remark))
            assert last is not None
            offset = gone_on(offset, int(last[1]) + 1)
            continue
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
        found += [(each.queue_offset, each.body) for each in messages(answer)]
        offset = gone_on(offset, int(answer.ext_fields["nextBeginOffset"]))
    return found


def gone_on(offset: int, following: int) -> int:
    assert following > offset, "a consumer would be blocked permanently"
    return following


async def all_read(peer: Peer) -> list[list[tuple[int, bytes]]]:
    found = []
    for topic, queue_id in (("b", 0), ("b", 1), ("s", 0), ("s", 1)):
        found.append(await read_whole(peer, topic, queue_id))
        found.append(await read_singly(peer, topic, queue_id))
        sql = {"subscription": "nothing IS NULL", "expressionType": "SQL92"}
        assert await read_singly(peer, topic, queue_id, **sql) == found[-1]
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_bent_batches_harm_nobody(tmp_path: Path, seed: int) -> None:
    volume, bender = MemoryFileSystem(), Bender(seed)
    settings = {"enablePropertyFilter": "true"}
    codes: set[int] = set()
    async with running(tmp_path, settings, filesystem=volume) as broker, connected(broker) as peer:
        await create_topic(peer)
        await create_topic(peer, "s", "")
        for _ in range(SENDS):
            codes |= await bender.send(peer)
        found = await all_read(peer)
        survivor = volume.after_kill()
    assert codes == TAKEN_OR_REFUSED
    assert sum(map(len, found)) > 200
    async with running(tmp_path, settings, filesystem=survivor) as broker, connected(broker) as peer:
        assert await all_read(peer) == found
