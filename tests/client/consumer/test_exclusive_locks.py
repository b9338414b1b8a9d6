"""Queue locks of consumers with an order: no queue is read without a lock."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection
from typing import cast

import pytest

from raptormq.client import MessageQueue
from raptormq.client.consumer.handover import Handover, QueueLocks
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.rebalance_calls import RebalanceCalls
from raptormq.client.interceptors import ConsumeChain
from raptormq.protocol.bodies.queues import QueueLockRequest, encode_locked_queues
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.client.consumer.test_queue_locks import connected
from tests.client.eventually import eventually
from tests.client.scripted_peer import ScriptedPeer, answer, refuse
from tests.turns import some_turns

QUEUES = [MessageQueue("t", "broker-0", number) for number in range(3)]
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


async def test_they_are_those_of_ordered_java_clients() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES[:2])))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g", exclusive=True)
        now = asyncio.get_running_loop().time()
        assert await locks.lock(QUEUES) == set(QUEUES[:2])
        [command] = peer.received[LOCK]
        assert QueueLockRequest.from_json(command.body).consumer_group == "g"
        assert now + 30 <= locks.locked_until(QUEUES[0]) <= asyncio.get_running_loop().time() + 30
        assert locks.locked_until(QUEUES[2]) == -math.inf
        await locks.unlock(QUEUES)
        assert locks.locked_until(QUEUES[0]) == -math.inf
        await instance.release()


async def test_a_broker_that_refuses_locks_is_not_read() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, refuse(ResponseCode.NO_PERMISSION))
        instance = await connected(peer)
        assert await QueueLocks(instance, "g", exclusive=True).lock(QUEUES) == set()
        assert await QueueLocks(instance, "g").lock(QUEUES) == set(QUEUES)
        await instance.release()


async def test_broker_that_refuses_locks_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, refuse(ResponseCode.SERVICE_NOT_AVAILABLE))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g", exclusive=True)
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                assert await locks.lock(QUEUES) == set()
        assert [record.getMessage().partition(" at ")[0] for record in caplog.records] == ["group g cannot lock queues"]
        assert len(peer.received[LOCK]) == 5
        await instance.release()


async def test_a_renewal_is_confirmed_and_what_could_not_be_renewed_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirmed: list[set[MessageQueue]] = []
    refused: list[set[MessageQueue]] = []
    async with ScriptedPeer() as peer:
        granted = answer(body=encode_locked_queues(QUEUES))
        peer.on(LOCK, granted, granted, refuse(ResponseCode.SYSTEM_BUSY))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g", exclusive=True)
        await locks.lock(QUEUES)

        def on_confirmed(queues: Collection[MessageQueue]) -> None:
            confirmed.append(set(queues))

        locks.start(lambda queues: refused.append(set(queues)), on_confirmed)
        locks.renew_soon()
        await eventually(lambda: confirmed == [set(QUEUES)])
        monkeypatch.setattr("raptormq.client.consumer.handover._RENEWAL_AFTER_FAILURE_S", 0.01)
        locks.renew_soon()
        await eventually(lambda: len(peer.received[LOCK]) >= 4)  # soon after the refusal
        assert refused == []
        monkeypatch.setattr("raptormq.client.consumer.handover._EXPIRED_S", 0.0)
        await eventually(lambda: refused == [set(QUEUES)])
        assert locks.locked_until(QUEUES[0]) == -math.inf
        assert confirmed == [set(QUEUES)]
        await locks.stop()
        await instance.release()


class Committed:
    """Replacement for the offset commits."""

    async def commit(self, readers: object) -> set[str]:
        return set()

    def forget(self, queue: MessageQueue) -> None: ...


class Busy:
    """Replacement for a reader whose listener is running."""

    def __init__(self) -> None:
        self.queue, self.is_busy, self.drops = QUEUES[0], True, 0
        self.is_abandoned = False
        self.ended = asyncio.Event()

    def revoke(self) -> None: ...

    def drop(self) -> None:
        self.drops += 1

    async def wait_for_calls(self, timeout: float, *, until_end: bool) -> None:
        if until_end:
            await self.ended.wait()


async def test_a_queue_is_acquired_with_its_lock_and_unlocked_after_its_last_call() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES[:1])))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g", exclusive=True)
        handover = Handover(
            locks, cast("OffsetCommitter", Committed()), 0.0, RebalanceCalls(None, "g", 1.0, ConsumeChain("g", ()))
        )
        # Even a queue whose owner has left is not read without its lock.
        assert await handover.acquire("t", QUEUES, set(QUEUES)) == QUEUES[:1]
        assert handover.pending_topics == {"t"}
        assert handover.locked_until(QUEUES[0]) > 0
        busy = Busy()
        handover.revoke([cast("QueueReader", busy)])
        await some_turns()
        assert busy.drops == 0
        assert peer.received[UNLOCK] == []
        busy.ended.set()
        await handover.wait()
        assert busy.drops == 1
        assert len(peer.received[UNLOCK]) == 1
        await instance.release()


async def test_the_lock_of_a_call_that_cannot_be_ended_is_left_to_its_time_limit() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES[:1])))
        instance = await connected(peer)
        handover = Handover(
            QueueLocks(instance, "g", exclusive=True),
            cast("OffsetCommitter", Committed()),
            0.0,
            RebalanceCalls(None, "g", 1.0, ConsumeChain("g", ())),
        )
        assert await handover.acquire("t", QUEUES[:1], set()) == QUEUES[:1]
        stuck = Busy()
        stuck.is_abandoned = True
        stuck.ended.set()
        handover.revoke([cast("QueueReader", stuck)])
        await handover.wait()
        assert stuck.drops == 1
        assert peer.received[UNLOCK] == []
        await instance.release()
