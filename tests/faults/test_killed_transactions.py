"""kill -9 in every state of a transaction: committed messages are delivered, rolled-back messages are not, and the
broker checks open transactions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from raptormq.errors import TransportError
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.record import decode_record
from raptormq.storage.store import now_ms
from raptormq.transport.connection import Connection
from tests.broker.harness import messages, pull_fields, send_fields
from tests.faults.broker_process import Client, process

COMMIT, ROLLBACK = 8, 12
HALF = "TRAN_MSG\x01true\x02PGROUP\x01makers\x02"
QUICK = {"transactionTimeOut": "1", "transactionCheckInterval": "100", "transactionCheckMax": "1000"}
NEVER = {"transactionCheckInterval": "86400000"}
WORKERS = 4
UNTIL = 150


def decision(body: bytes) -> int:
    return COMMIT if body.startswith(b"commit") else ROLLBACK


class Maker:
    """A producer that records checks and decides, unless it is silent."""

    def __init__(self, *, silent: bool = False) -> None:
        self.asked: Counter[bytes] = Counter()
        self._silent = silent

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Receive checks (RequestHandler)."""
        for each in requests:
            if each.code == RequestCode.CHECK_TRANSACTION_STATE:
                body = decode_record(each.body).body
                self.asked[body] += 1
                if not self._silent:
                    place = {name: each.ext_fields[name] for name in ("commitLogOffset", "tranStateTableOffset")}
                    fields = end_fields(decision(body)) | place | {"fromTransactionCheck": "true"}
                    connection.oneway(RemotingCommand(RequestCode.END_TRANSACTION, fields, flag=2))

    def closed(self, _: Connection) -> None:
        """Receive a oneway request (RequestHandler)."""


def end_fields(decided: int) -> dict[str, str]:
    return {
        "producerGroup": "makers", "commitOrRollback": str(decided), "fromTransactionCheck": "false", "msgId": "m",
    }  # fmt: skip


async def half(client: Client, body: bytes) -> dict[str, str]:
    """Begin a transaction. Return its position."""
    sent = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0, HALF) | {"g": now_ms()}, body)
    assert sent.code == 0, sent
    place = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
    return {"commitLogOffset": str(place), "tranStateTableOffset": sent.ext_fields["queueOffset"]}


async def end(client: Client, body: bytes, place: dict[str, str]) -> None:
    answer = await client.call(RequestCode.END_TRANSACTION, end_fields(decision(body)) | place)
    assert answer.code == 0, answer


async def announce(client: Client) -> None:
    beat = HeartbeatData("maker", ["makers"], []).to_json()
    assert (await client.call(RequestCode.HEART_BEAT, {}, beat)).code == 0


async def delivered(client: Client) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while (answer := await client.call(RequestCode.PULL_MESSAGE, pull_fields("t", found.total()))).code == 0:
        found.update(message.body for message in messages(answer))
    return found


async def until_delivered(client: Client, wanted: set[bytes]) -> Counter[bytes]:
    async with asyncio.timeout(40):
        while not wanted <= (found := await delivered(client)).keys():
            await asyncio.sleep(0.05)
    return found


async def test_each_state_survives(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    async with process(tmp_path, free_port, NEVER) as server:
        for body in (b"commit", b"roll back"):
            await end(client, body, await half(client, body))
        for body in (b"commit later", b"roll back later"):
            await half(client, body)
        server.kill()
    await client.close()
    silent = Maker(silent=True)
    client = Client(free_port, silent)
    async with process(tmp_path, free_port, QUICK) as server:
        await announce(client)
        async with asyncio.timeout(40):
            while len(silent.asked) < 2:
                await asyncio.sleep(0.02)
        server.kill()  # with unanswered checks
    await client.close()
    maker = Maker()
    client = Client(free_port, maker)
    async with process(tmp_path, free_port, QUICK) as server:
        await announce(client)
        found = await until_delivered(client, {b"commit later"})
        async with asyncio.timeout(40):
            while len(maker.asked) < 2:
                await asyncio.sleep(0.02)
        server.kill()
    await client.close()
    client = Client(free_port, silent)
    async with process(tmp_path, free_port, QUICK):
        assert await delivered(client) == found
    await client.close()
    assert silent.asked.keys() == maker.asked.keys() == {b"commit later", b"roll back later"}
    assert found == {b"commit": 1, b"commit later": 1}


async def test_killed_under_load(tmp_path: Path, free_port: int) -> None:
    begun: set[bytes] = set()
    ended: set[bytes] = set()

    async def work(client: Client, worker: int) -> None:
        number = 0
        while True:
            body = b"%s %d %d" % ((b"commit", b"roll back")[number % 2], worker, number)
            try:
                place = await half(client, body)
                begun.add(body)
                if number % 3:
                    await end(client, body, place)
                    ended.add(body)
            except TransportError:
                return
            number += 1

    client = Client(free_port)
    async with process(tmp_path, free_port, NEVER) as server:
        workers = [asyncio.ensure_future(work(client, number)) for number in range(WORKERS)]
        while len(ended) < UNTIL:
            assert not all(worker.done() for worker in workers)
            await asyncio.sleep(0.001)
        server.kill()
        await asyncio.gather(*workers)
    await client.close()
    maker = Maker()
    client = Client(free_port, maker)
    async with process(tmp_path, free_port, QUICK):
        await announce(client)
        found = await until_delivered(client, {body for body in begun if decision(body) == COMMIT})
    await client.close()
    assert {body for body in found if decision(body) == ROLLBACK} == set()
    assert {body: count for body, count in found.items() if count > 1} == {}
    assert ended & maker.asked.keys() == set()
