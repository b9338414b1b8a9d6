"""Request 31001: the state of the conversion of a topic's queues, and refused requests."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.storage.conversion.rebuild import QueueConversion
from raptormq.storage.fs.real import RealFileSystem
from tests.broker.batches.batch_peer import create_topic, named, old_pull, send_batch
from tests.broker.harness import Peer, bodies, connected, held, running, saved
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, allow, ask, create_alice
from tests.client.eventually import eventually
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem

CODE = RequestCode.CONVERT_QUEUE


async def order(peer: Peer, action: str, queue_type: str | None = None, topic: str = "t") -> QueueConversionState:
    answer = await call(peer, action, queue_type, topic)
    assert answer.code == 0, answer.remark
    return QueueConversionState.from_json(answer.body)


async def call(peer: Peer, action: str, queue_type: str | None = None, topic: str = "t") -> RemotingCommand:
    fields = {"topic": topic, "action": action} | ({"queueType": queue_type} if queue_type else {})
    return await peer.call(CODE, fields)


async def cancel_and_wait(peer: Peer, topic: str = "t") -> QueueConversionState:
    while (state := await order(peer, "status", topic=topic)).is_under_way:
        await asyncio.sleep(0.001)
    return state


async def send(peer: Peer, *names: str) -> None:
    for name in names:
        assert (await peer.send("t", name.encode())).code == 0


async def queue_type(peer: Peer) -> str | None:
    answer = await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
    return "BatchCQ" if b'"queue.type":"BatchCQ"' in answer.body else "SimpleCQ"


async def test_a_topic_is_converted_and_back_and_remembered(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a", "b", "c")
        assert await order(peer, "status") == QueueConversionState("t", "SimpleCQ", "none")
        assert (await order(peer, "start", "BatchCQ")).is_under_way
        state = await cancel_and_wait(peer)
        assert (state.queue_type, state.phase, state.done, state.total) == ("BatchCQ", "done", 3, 3)
        assert json.loads(saved(tmp_path / "config" / "queueConversions.json"))["conversions"] == {}
        assert state.checksum_before == state.checksum_after != ""
        assert (state.queue_type, state.target) == ("BatchCQ", "BatchCQ")
        assert await queue_type(peer) == "BatchCQ"
        assert (await send_batch(peer, named("d", "e"), topic="t")).code == 0
        assert bodies(await old_pull(peer, 0, topic="t")) == [b"a", b"b", b"c", b"d", b"e"]
        assert await order(peer, "start", "BatchCQ") == QueueConversionState("t", "BatchCQ", "none")
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await queue_type(peer) == "BatchCQ"
        assert bodies(await old_pull(peer, 1, topic="t")) == [b"b", b"c", b"d", b"e"]
        await order(peer, "start", "SimpleCQ")
        state = await cancel_and_wait(peer)
        assert state.phase == "refused"
        assert "an inner batch of 2 messages at offset 3" in state.remark
        assert await queue_type(peer) == "BatchCQ"


async def test_a_held_pull_sees_what_comes_after_the_switch(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=30_000))
        await held(peer, 1)
        await order(peer, "start", "BatchCQ")
        assert (await cancel_and_wait(peer)).phase == "done"
        await send(peer, "b")
        answer = await waiting
        assert bodies(answer) == [b"b"] if answer.code == 0 else bodies(await peer.pull("t", 1)) == [b"b"]


async def test_a_deleted_topic_is_not_converted_when_it_is_made_again(tmp_path: Path) -> None:
    slow = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, filesystem=slow) as broker, connected(broker) as peer:
        await send(peer, "a")
        slow.faults.append(Fault(kind="write", path="batchconsumequeue", error=28, repeats=True))
        await order(peer, "start", "BatchCQ")
        state = await cancel_and_wait(peer)
        assert (state.phase, state.queue_type) == ("failed", "SimpleCQ")
        assert "No space left" in state.remark
        slow.faults.clear()
        assert bodies(await peer.pull("t", 0)) == [b"a"]
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        while (await peer.send("t", b"new")).code:
            await asyncio.sleep(0.01)  # the broker detects free space within a second
        assert await order(peer, "status") == QueueConversionState("t", "SimpleCQ", "none")
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await order(peer, "status") == QueueConversionState("t", "SimpleCQ", "none")
        assert bodies(await peer.pull("t", 0)) == [b"new"]


async def test_a_table_from_before_the_conversion_follows_the_queues(tmp_path: Path) -> None:
    table = tmp_path / "config" / "topics.json"
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a")
        old = saved(table)
        await order(peer, "start", "BatchCQ")
        await cancel_and_wait(peer)
        assert (await send_batch(peer, named("b", "c"), topic="t")).code == 0
    table.write_bytes(old)
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await queue_type(peer) == "BatchCQ"
        assert (await order(peer, "status")).queue_type == "BatchCQ"
        assert bodies(await old_pull(peer, 0, topic="t")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("state", ["building", "switched"])
async def test_a_conversion_of_a_topic_that_is_gone_is_forgotten(tmp_path: Path, state: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "kept")
    ledger = tmp_path / "config" / "queueConversions.json"
    ledger.write_text(json.dumps({"conversions": {"gone": {"to": "BatchCQ", "state": state, "offset": 0}}}))
    async with running(tmp_path) as broker, connected(broker) as peer:
        while b"gone" in saved(ledger):
            await asyncio.sleep(0.001)
        assert (await peer.send("gone", b"new")).code == 0
        assert await order(peer, "status", topic="gone") == QueueConversionState("gone", "SimpleCQ", "none")
        assert bodies(await peer.pull("gone", 0)) == [b"new"]
        assert bodies(await peer.pull("t", 0)) == [b"kept"]
    assert (tmp_path / "consumequeue" / "gone").exists()


async def test_what_nobody_expects_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise ZeroDivisionError("no such thing")

    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a")
        with monkeypatch.context() as patched:
            patched.setattr(QueueConversion, "copy", broken)
            await order(peer, "start", "BatchCQ")
            state = await cancel_and_wait(peer)
        assert (state.phase, state.queue_type) == ("failed", "SimpleCQ")
        assert state.remark == "ZeroDivisionError: no such thing"
        assert "ZeroDivisionError" in caplog.text
        await order(peer, "start", "BatchCQ")
        assert (await cancel_and_wait(peer)).phase == "done"
        assert bodies(await peer.pull("t", 0)) == [b"a"]


async def test_a_stopped_conversion_stays_stopped_until_told(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, *map(str, range(50)))
        await order(peer, "start", "BatchCQ")
        await order(peer, "stop")
        first = await cancel_and_wait(peer)
        assert first.phase in ("stopped", "done")
    async with running(tmp_path) as broker, connected(broker) as peer:
        state = await order(peer, "status")
        assert state.phase == ("stopped" if first.phase == "stopped" else "none")
        await order(peer, "start", "BatchCQ")
        assert (await cancel_and_wait(peer)).queue_type == "BatchCQ"
        assert len(bodies(await peer.pull("t", 0, count=64))) == 32


@pytest.mark.parametrize(
    ("action", "queue_type", "topic", "code", "remark"),
    [
        ("start", "BatchCQ", "missing", 17, "topic[missing] not exist"),
        ("status", None, "missing", 17, "topic[missing] not exist"),
        ("start", "BatchCQ", "TBW102", 29, "is a system, retry or dead-letter topic and cannot be converted"),
        ("start", "RocksDBCQ", "t", 29, "queueType 'RocksDBCQ' is not BatchCQ or SimpleCQ"),
        ("start", None, "t", 29, "queueType None is not"),
        ("pause", None, "t", 29, "action 'pause' is not start, stop or status"),
    ],
)
async def test_orders_that_make_no_sense(
    tmp_path: Path, action: str, queue_type: str | None, topic: str, code: int, remark: str
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a")
        answer = await call(peer, action, queue_type, topic)
        assert answer.code == code
        assert remark in (answer.remark or "")


async def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.call(CODE, {"topic": "t"})
        assert (answer.code, "action" in (answer.remark or "")) == (1, True)


async def test_nobody_else_changes_the_type(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await create_topic(peer, "t", "+queue.type=SimpleCQ")).code == 0
        change = await create_topic(peer, "t", "+queue.type=BatchCQ")
        assert change.code == 1
        assert "queue.type cannot be changed after creation; raptormq convert-queue" in (change.remark or "")


async def test_it_takes_the_right_to_update_the_topic(tmp_path: Path) -> None:
    start: dict[str, object] = {"topic": "orders", "action": "start", "queueType": "BatchCQ"}
    look: dict[str, object] = {"topic": "orders", "action": "status"}
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        assert (await ask(peer, ROOT, RequestCode.UPDATE_AND_CREATE_TOPIC, new_topic("orders"))).code == 0
        assert [(await ask(peer, ALICE, CODE, fields)).code for fields in (start, look)] == [16, 16]
        await allow(peer, "Topic:orders", ["Get"])
        assert [(await ask(peer, ALICE, CODE, fields)).code for fields in (start, look)] == [16, 0]
        assert (await ask(peer, ROOT, CODE, start)).code == 0


def new_topic(name: str) -> dict[str, object]:
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }


async def test_nothing_is_left_of_an_order_that_was_refused_because_it_could_not_be_saved(tmp_path: Path) -> None:
    """The rename may be on the disk although its last step failed, which makes the new name durable."""
    disk = FaultyFileSystem(RealFileSystem())
    file = tmp_path / "config" / "queueConversions.json"
    async with running(tmp_path, filesystem=disk) as broker, connected(broker) as peer:
        await send(peer, "a")
        disk.faults.append(Fault(kind="sync_directory", path="config", error=errno.ENOSPC, repeats=True))
        assert (await call(peer, "start", "BatchCQ")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await order(peer, "status") == QueueConversionState("t", "SimpleCQ", "none")
        disk.faults.clear()
        await eventually(lambda: not json.loads(saved(file))["conversions"])
        while (await call(peer, "start", "BatchCQ")).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.01)  # free space is detected within a second
        assert (await cancel_and_wait(peer)).phase == "done"
