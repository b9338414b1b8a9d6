"""Repeated kill -9 while the broker writes messages: those with a delay level, timer messages, committed transactions,
and popped messages that return. Each is in the log once, however often the broker is killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode
from raptormq.storage.store import now_ms
from tests.broker.harness import messages, pull_fields, send_fields
from tests.faults.broker_process import Client, process
from tests.faults.test_killed_transactions import QUICK, Maker, announce, half

KILLS = 4
A_ROUND = 120
"""Messages of each kind between two kills."""
SETTINGS = QUICK | {"messageDelayLevel": "1s 1s 2s 2s", "timerPrecisionMs": "100"}


class Load:
    """Sent messages, and the number of copies of each."""

    def __init__(self, port: int) -> None:
        self.client = Client(port, Maker())
        self.sent: set[bytes] = set()

    async def send_round(self, number: int) -> None:
        """Send messages that become due from about now until after the next kills."""
        now = now_ms()
        for each in range(A_ROUND):
            for topic, kind, properties in (
                ("t", b"level", f"DELAY\x01{1 + each % 4}\x02"),
                ("t", b"timer", f"TIMER_DELIVER_MS\x01{now + 500 + 25 * each}\x02"),
                (f"p{number}", b"popped", ""),
            ):
                await self._send(topic, b"%s %d %d" % (kind, number, each), properties)
            body = b"commit %d %d" % (number, each)
            await half(self.client, body)
            self.sent.add(body)
        await self.pop_all(f"p{number}")
        await announce(self.client)  # now the producers are checked

    async def _send(self, topic: str, body: bytes, properties: str) -> None:
        answer = await self.client.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, 0, properties), body)
        assert answer.code == 0, answer
        self.sent.add(body)

    async def pop_all(self, topic: str) -> None:
        """Pop every message once, without an acknowledgement."""
        fields = {
            "consumerGroup": "poppers", "topic": topic, "queueId": 0, "maxMsgNums": 32, "invisibleTime": 2500,
            "pollTime": 0, "bornTime": now_ms() + 3_600_000, "initMode": 0, "expType": "TAG", "exp": "*",
        }  # fmt: skip
        taken = 0
        while taken < A_ROUND:
            taken += len(messages(await self.client.call(RequestCode.POP_MESSAGE, fields)))

    async def copies(self) -> Counter[bytes]:
        """Return the number of copies of each message in its topic, or in its retry topic."""
        found: Counter[bytes] = Counter()
        for topic in ("t", *(f"%RETRY%poppers_p{number}" for number in range(KILLS))):
            offset = 0
            while (answer := await self.client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, offset))).code == 0:
                found.update(message.body for message in messages(answer))
                offset = int(answer.ext_fields["nextBeginOffset"])
        return found


def kinds(copies: Counter[bytes]) -> Counter[bytes]:
    """Return how many messages of each kind have been delivered, including copies."""
    found: Counter[bytes] = Counter()
    for body, count in copies.items():
        found[body.split()[0]] += count
    return found


def least_since(before: Counter[bytes], copies: Counter[bytes]) -> int:
    now = kinds(copies)
    return min(now[kind] - before[kind] for kind in (b"level", b"timer", b"commit"))


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_each_message_comes_once(tmp_path: Path, free_port: int, flush_disk_type: str) -> None:
    load = Load(free_port)
    settings = SETTINGS | {"flushDiskType": flush_disk_type}
    for number in range(KILLS):
        async with process(tmp_path, free_port, settings) as server:
            before = kinds(await load.copies())
            await load.send_round(number)
            while least_since(before, await load.copies()) < A_ROUND // 3:
                await asyncio.sleep(0.02)
            server.kill()
    async with process(tmp_path, free_port, settings):
        await announce(load.client)
        while load.sent > (await load.copies()).keys():
            await asyncio.sleep(0.05)
        found = await load.copies()
    await load.client.close()
    assert {body: count for body, count in found.items() if count > 1} == {}
    assert found.keys() == load.sent
