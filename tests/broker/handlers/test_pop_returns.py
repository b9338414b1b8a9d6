"""Popped messages that return: once, also across restarts, and not if they are acknowledged meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.pop.revive_log import REVIVE_GROUP, revive_topic
from raptormq.errors import StorageError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.pop_handle import PopHandle
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage
from raptormq.storage.queue import AppendResult
from raptormq.storage.read.options import GetResult, ReadOptions
from tests.broker.batches.batch_peer import create_topic, named, send_batch
from tests.broker.handlers.test_pop import HOUR, MINUTE, RETRY, ack, come_back, handle_of, pop
from tests.broker.handlers.test_pop_trouble import change
from tests.broker.harness import Peer, bodies, connected, copy_of_running, held, messages, running, saved
from tests.client.eventually import eventually
from tests.clock import Clock

QUEUE_TYPES = ("SimpleCQ", "BatchCQ")


async def acknowledge(peer: Peer, back: StoredMessage) -> None:
    """Acknowledge a message that was popped from the retry topic."""
    info = decode_properties(back.properties)["POP_CK"]
    done = await ack(peer, PopHandle(0, 0, 0, 0, ""), int(info.split(" ")[-1]), RETRY, extraInfo=info)
    assert done.code == 0


async def pop_for_long(peer: Peer) -> None:
    """Pop a message into each revive queue, so that none can be processed to its end before the acknowledgement."""
    for _ in range(8):
        assert len(bodies(await pop(peer, maxMsgNums=1, invisibleTime=HOUR))) == 1


async def expect_nothing_after_starts(root: Path, clock: Clock) -> None:
    for _ in range(2):
        async with running(root, clock=clock) as broker, connected(broker) as peer:
            assert bodies(await pop(peer, queueId=-1, pollTime=600)) == []


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
async def test_what_came_back_and_is_done_does_not_come_with_the_next_start(tmp_path: Path, queue_type: str) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await create_topic(peer, "t", f"+queue.type={queue_type}")
        await send_batch(peer, named(*(f"m{number}" for number in range(20))), topic="t")
        await pop_for_long(peer)
        await pop(peer, invisibleTime=0)
        for back in await come_back(peer, 12):
            await acknowledge(peer, back)
    await expect_nothing_after_starts(tmp_path, clock)


async def test_what_came_back_in_part_is_written_down_as_done(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"%d" % number for number in range(11)])
        await pop_for_long(peer)
        popped = await pop(peer, invisibleTime=MINUTE)
        assert (await ack(peer, handle_of(popped, 8), 9)).code == 0
        clock.move(MINUTE)
        for back in await come_back(peer, 2):
            assert back.body in (b"8", b"10")
            await acknowledge(peer, back)
    await expect_nothing_after_starts(tmp_path, clock)


async def test_what_was_popped_of_a_deleted_topic_is_not_looked_for_in_a_new_one(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        for topic in ("t", "u"):
            await create_topic(peer, topic, "+queue.type=SimpleCQ")
            await peer.send_list(topic, [b"%d" % number for number in range(9)])
        for _ in range(8):
            await pop(peer, topic="u", maxMsgNums=1, invisibleTime=HOUR)
        await pop(peer, invisibleTime=MINUTE)
        await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        await pop(peer, topic="u", invisibleTime=MINUTE)
        clock.move(MINUTE)
        assert bodies(await pop(peer, topic="u", queueId=-1, pollTime=20_000)) == [b"8"]  # that of "t" was due earlier
        await create_topic(peer, "t", "+queue.type=SimpleCQ")
        await peer.send_list("t", [b"new %d" % number for number in range(9)])
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        assert bodies(await pop(peer)) == [b"new %d" % number for number in range(9)]
        assert bodies(await pop(peer, queueId=-1, pollTime=600)) == []


def slow_flushes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Make operations on the disk wait for the second event. The first event reports that one waits."""
    flushing, flushed = asyncio.Event(), asyncio.Event()
    confirmed = broker._store.wait_confirmed

    async def waiting(end_offset: int) -> None:
        flushing.set()
        await flushed.wait()
        await confirmed(end_offset)

    monkeypatch.setattr(broker._store, "wait_confirmed", waiting)
    return flushing, flushed


def failing_flush(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Make the next pop wait for the second event and then fail. The first event reports that it waits."""
    failing, may_fail = asyncio.Event(), asyncio.Event()
    confirmed = InternalWriter.wait_confirmed  # the delay service, which saves its progress meanwhile, asks the store

    async def fail(_self: InternalWriter, _written: AppendResult) -> None:
        monkeypatch.setattr(InternalWriter, "wait_confirmed", confirmed)
        failing.set()
        await may_fail.wait()
        raise StorageError("Input/output error")

    monkeypatch.setattr(InternalWriter, "wait_confirmed", fail)
    return failing, may_fail


def slow_reads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Make reads of "t" wait for the second event. The first event reports that one waits."""
    reading, may_read = asyncio.Event(), asyncio.Event()
    read = broker._store.load_messages

    async def waiting(topic: str, queue_id: int, offset: int, options: ReadOptions) -> GetResult:
        reading.set()
        await may_read.wait()
        return await read(topic, queue_id, offset, options)

    monkeypatch.setattr(broker._store, "load_messages", waiting)
    return reading, may_read


@pytest.mark.parametrize("done", [(0,), (0, 1)])
async def test_what_is_acknowledged_while_it_is_read_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: tuple[int, ...]
) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        handle = handle_of(await pop(peer), 0)
        await peer.send("t", b"last")
        assert bodies(await pop(peer)) == [b"last"]
        reading, may_read = slow_reads(broker, monkeypatch)
        clock.move(MINUTE)
        await reading.wait()
        for offset in done:
            assert (await ack(peer, handle, offset)).code == 0
        may_read.set()
        back: list[bytes] = []
        while b"last" not in back:
            back += [message.body for message in messages(await pop(peer, queueId=-1, pollTime=1_000))]
        assert back == [b"0", b"1", b"last"][len(done) :]


async def test_an_acknowledgement_that_is_answered_after_one_that_failed_is_known_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"%d" % number for number in range(9)])
        await pop_for_long(peer)
        handle = handle_of(await pop(peer), 8)
        append = broker._store.append

        def full(_: object) -> None:
            monkeypatch.setattr(broker._store, "append", append)
            raise StorageError("no room")

        monkeypatch.setattr(broker._store, "append", full)
        assert (await ack(peer, handle, 8)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await ack(peer, handle, 8)).code == 0
    clock.move(MINUTE)
    await expect_nothing_after_starts(tmp_path, clock)


SYNC = {"flushDiskType": "SYNC_FLUSH"}
SAVED_OFTEN = SYNC | {"flushConsumerOffsetInterval": "50"}


async def test_what_is_acknowledged_while_its_time_is_changed_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with running(tmp_path, SYNC, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"%d" % number for number in range(9)])
        await pop_for_long(peer)
        handle = handle_of(await pop(peer), 8)
        flushing, flushed = slow_flushes(broker, monkeypatch)
        changing = asyncio.ensure_future(change(peer, handle, MINUTE, 8))
        await flushing.wait()
        end = broker._store.end_offset
        acknowledging = asyncio.ensure_future(ack(peer, handle, 8))
        await eventually(lambda: broker._store.end_offset > end)
        assert not acknowledging.done(), "the acknowledgement is not on disk"
        flushed.set()
        assert [(await each).code for each in (changing, acknowledging)] == [0, 0]
        clock.move(2 * MINUTE)
        assert bodies(await pop(peer, queueId=-1, pollTime=600)) == []
    await expect_nothing_after_starts(tmp_path, clock)


def saved_offsets(root: Path, key: str) -> dict[str, int]:
    """Return the offsets of a group in a topic by queue that a start after a crash would load."""
    content = saved(root / "config" / "consumerOffset.json")
    found: dict[str, int] = json.loads(content)["offsetTable"].get(key, {}) if content else {}
    return found


async def saved_progress(root: Path, done: dict[int, int]) -> None:
    """Wait until a start after a crash would read the revive log only after these offsets."""
    wanted = {str(queue): offset for queue, offset in done.items()}
    await eventually(lambda: saved_offsets(root, f"{revive_topic('DefaultCluster')}@{REVIVE_GROUP}") == wanted)


async def test_a_crash_while_checkpoints_are_written_loses_nothing_and_little_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, before, after = Clock(), tmp_path / "before", tmp_path / "after"
    async with running(before, SAVED_OFTEN, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"%d" % number for number in range(9)])
        for number in range(8):
            handle = handle_of(await pop(peer, maxMsgNums=1), number)
            assert (await ack(peer, handle, number)).code == 0
        flushing, flushed = slow_flushes(broker, monkeypatch)
        popping = asyncio.ensure_future(pop(peer))
        await flushing.wait()
        await saved_progress(before, dict.fromkeys(range(8), 1))  # the last acknowledgement before the current one
        flushed.set()
        assert bodies(await popping) == [b"8"]
        await eventually(lambda: saved_offsets(before, "t@consumers") == {"0": 9})
        copy_of_running(before, after)
    clock.move(MINUTE)
    async with running(after, clock=clock) as broker, connected(broker) as peer:
        assert [message.body for message in await come_back(peer, 1)] == [b"8"]
        assert bodies(await pop(peer, queueId=-1)) == []


async def test_a_pop_that_failed_does_not_keep_a_start_at_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, SAVED_OFTEN) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        failing_flush(monkeypatch)[1].set()
        assert (await pop(peer)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert bodies(popped := await pop(peer)) == [b"x"]
        assert (await ack(peer, handle_of(popped, 0), 0)).code == 0
        await saved_progress(tmp_path, {0: 0, 1: 1})


@pytest.mark.parametrize("apart_ms", [0, 2])
async def test_a_message_whose_time_is_changed_twice_at_once_comes_back_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart_ms: int
) -> None:
    clock = Clock()
    async with running(tmp_path, SYNC, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"once")
        clock.hold()
        handle = handle_of(await pop(peer), 0)
        flushing, flushed = slow_flushes(broker, monkeypatch)
        changing = [asyncio.ensure_future(change(peer, handle, MINUTE))]
        await flushing.wait()
        clock.move(apart_ms)
        changing.append(asyncio.ensure_future(change(peer, handle, MINUTE)))
        await held(peer, 1)
        flushed.set()
        assert [answer.code for answer in await asyncio.gather(*changing)] == [0, 0]
        clock.run()
        clock.move(2 * MINUTE)
        assert [message.body for message in await come_back(peer, 1)] == [b"once"]
        assert bodies(await pop(peer, queueId=-1, pollTime=600)) == []


async def test_a_message_whose_time_is_changed_while_it_comes_back_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with running(tmp_path, SYNC, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"once")
        handle = handle_of(await pop(peer), 0)
        flushing, flushed = slow_flushes(broker, monkeypatch)
        changing = asyncio.ensure_future(change(peer, handle, MINUTE))
        await flushing.wait()
        flushing.clear()
        clock.move(MINUTE)
        await flushing.wait()  # the copy is written after the checkpoint of the change
        flushed.set()
        assert (await changing).code == 0
        (back,) = await come_back(peer, 1)
        await acknowledge(peer, back)
        clock.move(2 * MINUTE)
        assert bodies(await pop(peer, queueId=-1, pollTime=600)) == []
    await expect_nothing_after_starts(tmp_path, clock)
