"""Lag of groups in /metrics, in messages, also for queues of batches."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.metrics import lag as group_lags
from raptormq.broker.metrics.lag import LagCollector
from raptormq.broker.pop.revive_log import REVIVE_GROUP
from raptormq.broker.transaction import transaction_service
from raptormq.errors import StorageError
from raptormq.protocol.bodies.group_progress import GroupLag, QueueProgress, decode_consume_stats
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import retry_topic
from raptormq.storage import background
from tests.broker.batches.batch_peer import create_topic, named, send_batch
from tests.broker.harness import Peer, connected, running
from tests.broker.retention import SHORT_SEGMENTS, delete_what_is_stored
from tests.turns import counted_turns


async def commit(peer: Peer, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0


async def figures(broker: Broker) -> tuple[dict[tuple[str, str], float], float]:
    """Return the lags by group and topic, and the number of groups that exceeded the time limit."""
    status, page = await broker._pages.by_path()["/metrics"]()
    assert status == 200
    lags = re.findall(r'\nraptormq_broker_group_lag_messages{.*group="(.*)",topic="(.*)"} (\S+)', page.decode())
    (left_out,) = re.findall(r"\nraptormq_broker_group_lags_left_out{.*} (\S+)", page.decode())
    return {(group, topic): float(lag) for group, topic, lag in lags}, float(left_out)


async def test_messages_behind_the_committed_offset_count(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await send_batch(peer, named("d", "e"), queue_id=1)
        await peer.send_list("simple", [b"x"] * 4)
        assert await figures(broker) == ({}, 0)
        await commit(peer, "g", "b", 1)  # within the batch
        await commit(peer, "h", "b", 3)
        await commit(peer, "g", "simple", 4)
        found, _ = await figures(broker)
        assert found == {("g", "b"): 2 + 2, ("h", "b"): 2, ("g", "simple"): 0}
        await peer.send("simple", b"y")
        assert (await figures(broker))[0]["g", "simple"] == 1


async def progress_of_g(peer: Peer) -> QueueProgress:
    """Return the offset of g in the first queue of t."""
    answer = await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "t"})
    return decode_consume_stats(answer.body)[MessageQueue("t", "broker-a", 0)]


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_what_retention_has_deleted_is_lost_and_no_lag(tmp_path: Path, queue_type: str) -> None:
    async with running(tmp_path, SHORT_SEGMENTS) as broker, connected(broker) as peer:
        await create_topic(peer, "t", f"+queue.type={queue_type}")
        for number in range(4):
            await peer.send_list("t", [b"%d" % number] * 100)
        for group, offset in (("g", 100), ("done", 400), ("beyond", 390)):
            await commit(peer, group, "t", offset)
        await delete_what_is_stored(tmp_path, broker, peer)
        _, page = await broker._pages.by_path()["/metrics"]()
        text = page.decode()
        for group, lost in (("g", 300), ("beyond", 10), ("done", 0)):
            labels = f'{{broker="broker-a",cluster="DefaultCluster",group="{group}",topic="t"}}'
            assert f"\nraptormq_broker_group_lag_messages{labels} 0.0" in text
            assert f"\nraptormq_broker_group_lost_messages{labels} {lost}.0" in text
        each = await progress_of_g(peer)
        assert (each.consumer_offset, each.min_offset, each.broker_offset) == (100, 400, 400)
        assert (each.lag, each.lost) == (0, 300)
        told = await peer.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
        assert b'"totalDiff":0' in told.body
        await peer.send("t", b"new")
        await commit(peer, "g", "t", 400)
        assert (await figures(broker))[0]["g", "t"] == 1
        each = await progress_of_g(peer)
        assert (each.lag, each.lost) == (1, 0)


async def test_topics_that_are_gone_have_no_lag(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a"))
        await commit(peer, "g", "b", 1)
        await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "b"})
        assert await figures(broker) == ({}, 0)


async def test_groups_of_brokers_and_tools_have_no_lag(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a"))
        for group in (transaction_service.GROUP, REVIVE_GROUP, "TOOLS_CONSUMER", "mine"):
            broker._store.consumer_offsets.commit("b", group, 0, 0)
        assert await figures(broker) == ({("mine", "b"): 1}, 0)


async def test_what_there_is_no_room_or_time_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for group in ("g", "h", "i"):
            await commit(peer, group, "b", 0)
        monkeypatch.setattr(group_lags, "MAX_PAIRS", 2)
        found, left_out = await figures(broker)
        assert (len(found), left_out) == (2, 1)
        monkeypatch.setattr(group_lags, "COLLECT_TIMEOUT_S", 0.0)
        monkeypatch.setattr(background, "_SLICE_S", -1.0)
        found, left_out = await figures(broker)
        assert len(found) < 2
        assert len(found) + left_out == 3


async def test_what_was_left_out_comes_first_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for group in ("g", "h", "i"):
            await commit(peer, group, "b", 0)
        monkeypatch.setattr(group_lags, "MAX_PAIRS", 2)
        seen = [{group for group, _ in (await figures(broker))[0]} for _ in range(3)]
        assert seen == [{"g", "h"}, {"i", "g"}, {"h", "i"}]


async def test_who_takes_all_the_time_there_is_keeps_nobody_else_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for group in ("slow", "g", "h"):
            await commit(peer, group, "b", 0)
        lag = LagCollector._lag

        async def some_are_slow(rounds: LagCollector, topic: str, group: str) -> GroupLag:
            return await (asyncio.Future() if group == "slow" else lag(rounds, topic, group))

        monkeypatch.setattr(LagCollector, "_lag", some_are_slow)
        monkeypatch.setattr(group_lags, "COLLECT_TIMEOUT_S", 0.05)
        monkeypatch.setattr(background, "_SLICE_S", 3_600.0)
        assert await figures(broker) == ({}, 3)
        assert await figures(broker) == ({("g", "b"): 0, ("h", "b"): 0}, 1)


async def test_on_a_busy_loop_many_groups_take_few_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for number in range(300):
            broker._store.consumer_offsets.commit("b", f"g{number}", 0, 0)
        monkeypatch.setattr(background, "_SLICE_S", 3_600.0)
        with counted_turns() as turns:
            found, _ = await figures(broker)
            assert (len(found), turns() < 10) == (300, True)


async def test_a_queue_that_cannot_be_read_costs_its_own_lags_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b"))
        for topic in ("damaged", "simple"):
            await peer.send(topic, b"x")
        for topic in ("damaged", "simple", "b"):
            await commit(peer, "g", topic, 0, queue_id=1)  # so that the search starts at queue 0
        queue_bounds = broker._store.queue_bounds

        async def read(topic: str, queue_id: int) -> tuple[int, int]:
            if topic == "damaged":
                raise StorageError("the queue cannot be read")
            return await queue_bounds(topic, queue_id)

        monkeypatch.setattr(broker._store, "queue_bounds", read)
        assert await figures(broker) == ({("g", "simple"): 1, ("g", "b"): 2}, 1)


async def test_what_waits_for_another_attempt_has_a_lag_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.heartbeat("c", "g", "t")  # creates the retry topic
        await commit(peer, "g", retry_topic("g"), 0)
        assert (await figures(broker))[0] == {("g", retry_topic("g")): 0}
