"""POP with faults: a disk that refuses writes, full properties, and a truncated log."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.broker.pop.revive_log import REVIVE_QUEUES
from raptormq.errors import StorageError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.pop_handle import PopHandle, build_handle, parse_handle
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.read.options import GetResult, ReadOptions
from tests.broker.batches.batch_peer import create_topic
from tests.broker.batches.test_wrapped_batches import MARK, PROPERTIES, SEALED, send_wrapped
from tests.broker.handlers.test_pop import MINUTE, ack, come_back, handle_of, pop
from tests.broker.harness import Peer, assembly_of, bodies, connected, running
from tests.clock import Clock


async def largest(peer: Peer, body: bytes) -> None:
    """Send a message with the longest accepted properties."""
    size = MAX_PROPERTIES_BYTES
    while (await peer.send("t", body, properties="p\x01" + "v" * size + "\x02")).code:
        size -= 1


async def test_everything_comes_back_when_the_disk_takes_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        for number in range(6):
            await peer.send("t", b"%d" % number)
        for _ in range(6):
            assert (await pop(peer, maxMsgNums=1)).code == 0
        failed = asyncio.Event()
        append = broker._store.append

        def full(_: object) -> None:
            failed.set()
            raise StorageError("no room")

        monkeypatch.setattr(broker._store, "append", full)
        clock.move(MINUTE)
        await failed.wait()
        monkeypatch.setattr(broker._store, "append", append)
        back = await come_back(peer, 6)
        assert sorted(message.body for message in back) == [b"%d" % number for number in range(6)]


async def test_properties_without_room_for_a_handle_come_back_without_the_largest(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await largest(peer, b"large")
        await peer.send("t", b"small")
        assert len(bodies(await pop(peer, invisibleTime=300))) == 2
        back = {message.body: decode_properties(message.properties) for message in await come_back(peer, 2)}
        assert back.keys() == {b"large", b"small"}
        assert (back[b"large"]["__LEFT_OUT"], "p" in back[b"large"]) == ("p", False)
        handle = parse_handle(back[b"large"]["POP_CK"])
        assert (await ack(peer, handle, 0, "%RETRY%consumers_t")).code == 0


async def test_what_a_retry_topic_has_from_elsewhere_has_no_room_for_a_handle_and_is_popped(tmp_path: Path) -> None:
    """Neither Apache RocketMQ nor a consumer that sends to its retry topic leaves room for the handle."""
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await pop(peer, invisibleTime=0)
        await come_back(peer, 1)
        assert broker._store is not None
        full = PendingRecord("%RETRY%consumers_t", 0, b"full", b"p\x01" + b"v" * (MAX_PROPERTIES_BYTES - 3) + b"\x02")
        broker._store.append([full])
        assembly_of(broker).reput.schedule()
        (popped,) = await come_back(peer, 1)
        found = decode_properties(popped.properties)
        assert (popped.body, set(found), found["__LEFT_OUT"]) == (b"full", {"POP_CK", "__LEFT_OUT"}, "p")


async def test_a_value_with_a_separator_comes_back_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"odd", properties="a\x01b\x01c\x02")
        await pop(peer, invisibleTime=0)
        (back,) = await come_back(peer, 1)
        assert decode_properties(back.properties)["a"] == "b\x01c"


async def test_what_is_popped_after_a_power_cut_comes_back_after_the_next_crash(tmp_path: Path) -> None:
    revive = "rmq_sys_REVIVE_LOG_DefaultCluster"
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
    file = tmp_path / "config" / "consumerOffset.json"
    ahead = {str(queue): 1_000 for queue in range(REVIVE_QUEUES)}  # the lost entries were processed
    file.write_text(json.dumps({"offsetTable": {f"{revive}@CID_RMQ_SYS_REVIVE_GROUP": ahead}}))
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        assert bodies(await pop(peer)) == [b"x"]
    clock.move(MINUTE)
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        assert [message.body for message in await come_back(peer, 1)] == [b"x"]


async def test_pops_wait_until_it_is_known_what_is_outstanding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await pop(peer)
    clock.move(MINUTE)
    monkeypatch.setattr("raptormq.broker.pop.revive_service._RETRY_MS", 100)
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        revival = assembly_of(broker).services[-1]
        replay = revival._replay  # type: ignore[attr-defined]

        def fail(*_: object) -> None:
            monkeypatch.setattr(revival, "_replay", replay)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(revival, "_replay", fail)
        waiting = asyncio.ensure_future(pop(peer, queueId=-1, pollTime=MINUTE))
        assert bodies(await waiting) == [b"x"]
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": 0})).code == 0


async def pop_of_two_topics(peer: Peer, clock: Clock) -> None:
    """Pop a message of "t" and one of "u" that return at the same time. The clock is stopped at the end."""
    clock.hold()
    for topic in ("t", "u"):
        await peer.send(topic, topic.encode())
        assert bodies(await pop(peer, topic=topic)) == [topic.encode()]


async def popped_again(peer: Peer, topic: str) -> list[bytes]:
    """Return the messages of a topic that come back after a pop."""
    while True:
        if found := bodies(await pop(peer, topic=topic, queueId=-1, pollTime=1_000)):
            return found


def forget_deletions(root: Path) -> None:
    """Make the store like one of Apache RocketMQ: without the file of deleted topics, and with the whole revive log
    unprocessed.
    """
    config = root / "config"
    (config / "deletedTopics.json").unlink()
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"u@consumers": {"0": 1}}}))


async def test_an_encrypted_batch_in_place_of_what_was_popped_keeps_nobody_from_coming_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await pop_of_two_topics(peer, clock)
        await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        await create_topic(peer, "t")
        assert (await send_wrapped(peer, SEALED, INNER_BATCH, PROPERTIES + MARK, topic="t")).code == 0
        clock.run()
    forget_deletions(tmp_path)
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        clock.move(MINUTE)
        assert await popped_again(peer, "u") == [b"u"]
    assert "cannot revive message 0 of t: messages 0 to 2 of the queue are encrypted" in caplog.text


async def test_a_queue_that_cannot_be_read_keeps_only_its_own_messages_from_coming_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await pop_of_two_topics(peer, clock)
        read = broker._store.load_messages

        async def failing(topic: str, queue_id: int, offset: int, options: ReadOptions) -> GetResult:
            if topic == "t":
                raise StorageError("Input/output error")
            return await read(topic, queue_id, offset, options)

        monkeypatch.setattr(broker._store, "load_messages", failing)
        clock.run()
        clock.move(MINUTE)
        assert await popped_again(peer, "u") == [b"u"]
        monkeypatch.setattr(broker._store, "load_messages", read)
        assert await popped_again(peer, "t") == [b"t"]


async def change(peer: Peer, handle: PopHandle, invisible_ms: int, offset: int = 0, **more: object) -> RemotingCommand:
    fields: dict[str, object] = {
        "consumerGroup": "consumers",
        "topic": "t",
        "queueId": 0,
        "offset": offset,
        "invisibleTime": invisible_ms,
    }
    handed_in = {"extraInfo": build_handle(handle, "t", 0, offset)}
    return await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields | handed_in | more)


async def test_a_message_whose_time_is_changed_in_the_millisecond_of_its_pop_comes_back(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        clock.hold()
        answer = await pop(peer)
        for _ in range(3):
            answer = await change(peer, handle_of(answer, 0), MINUTE)
            assert answer.code == 0
        clock.run()
        clock.move(MINUTE)
        back = await come_back(peer, 2)
    assert sorted(message.body for message in back) == [b"0", b"1"]


async def test_what_is_done_is_not_made_visible_again_by_a_change(tmp_path: Path) -> None:
    async with running(tmp_path, {"maxOutstandingPops": "1"}) as broker, connected(broker) as peer:
        await peer.send("t", b"done")
        handle = handle_of(await pop(peer), 0)
        assert (await ack(peer, handle, 0)).code == 0
        for late in (handle, replace(handle, pop_time=handle.pop_time + 1)):
            assert (await change(peer, late, MINUTE)).code == 0
        await peer.send("t", b"next")
        assert bodies(await pop(peer)) == [b"next"]
