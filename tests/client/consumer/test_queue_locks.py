"""Queue locks at brokers, and consumption from brokers without locks."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client import ClientConfig, MessageQueue
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.handover import QueueLocks
from raptormq.protocol.bodies.queues import QueueLockRequest, encode_locked_queues
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from tests.client.eventually import eventually
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, route, silence

QUEUES = [MessageQueue("t", "broker-0", number) for number in range(3)]
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


async def connected(peer: ScriptedPeer, unreachable: str | None = None) -> ClientInstance:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(3, peer, unreachable=unreachable))
    instance = ClientInstance.acquire(ClientConfig(peer.address, request_timeout=2))
    await instance.routes.find("t")
    return instance


async def test_only_what_the_broker_grants_is_ours() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES[:2])))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        assert await locks.lock(QUEUES) == set(QUEUES[:2])
        await locks.unlock(QUEUES)
        for code in LOCK, UNLOCK:
            [command] = peer.received[code]
            body = QueueLockRequest.from_json(command.body)
            # The reference assumes that a group with its own locks consumes in order.
            assert (body.consumer_group, body.client_id) == ("%RETRY%g", instance.client_id)
            assert sorted(body.queues) == QUEUES
        await instance.release()


async def test_many_queues_do_not_keep_a_broker_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.client.consumer.handover._MAX_QUEUES_PER_REQUEST", 2)
    async with ScriptedPeer() as peer:
        peer.on(LOCK, *(answer(body=encode_locked_queues(part)) for part in (QUEUES[:2], QUEUES[2:])))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        assert await locks.lock(QUEUES) == set(QUEUES)
        await locks.unlock(QUEUES)
        for code in LOCK, UNLOCK:
            asked = [QueueLockRequest.from_json(command.body).queues for command in peer.received[code]]
            assert asked == [QUEUES[:2], QUEUES[2:]]
        await instance.release()


@pytest.mark.parametrize(
    "reply", [refuse(ResponseCode.NO_PERMISSION), hang_up, silence, answer(body=b"{")], ids=["no", "end", "mute", "?"]
)
async def test_a_broker_without_locks_is_read_all_the_same(reply: Reply) -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, reply)
        peer.on(UNLOCK, reply)
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        at_once = await locks.lock(QUEUES)
        assert at_once == (set() if reply is silence else set(QUEUES))  # awaited in the background
        await eventually(lambda: not locks._late_requests)
        assert await locks.lock(QUEUES) == set(QUEUES)
        await locks.unlock(QUEUES)
        await instance.release()


async def test_a_broker_that_does_not_answer_holds_up_no_other_one() -> None:
    async with ScriptedPeer() as peer, ScriptedPeer() as frozen, asyncio.timeout(60):
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer, frozen))
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES[:1])))
        frozen.on(LOCK, silence, answer(body=encode_locked_queues([MessageQueue("t", "broker-1", 0)])))
        instance = ClientInstance.acquire(ClientConfig(peer.address, request_timeout=300))
        await instance.routes.find("t")
        locks = QueueLocks(instance, "g")
        both = [QUEUES[0], MessageQueue("t", "broker-1", 0)]
        for _ in range(2):
            assert await locks.lock(both) == {QUEUES[0]}
        assert len(frozen.received[LOCK]) == 1
        for connection in list(frozen.connections):
            connection.abort()  # it is revoked, and read without locks
        await eventually(lambda: not locks._late_requests)
        assert await locks.lock(both[1:]) == set(both[1:])
        assert len(frozen.received[LOCK]) == 1
        await instance.release()


@pytest.mark.parametrize("granted", [2, 0])
async def test_what_a_broker_says_late_counts_for_who_asks_again(granted: int) -> None:
    late: list[tuple[Connection, RemotingCommand]] = []
    async with ScriptedPeer() as peer:
        peer.on(LOCK, lambda *asked: late.append(asked), answer(body=encode_locked_queues(QUEUES[2:])))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        assert await locks.lock(QUEUES[:2]) == set()
        answer(body=encode_locked_queues(QUEUES[:granted]))(*late[0])
        await eventually(lambda: not locks._late_requests)
        assert await locks.lock(QUEUES) == {*QUEUES[:granted], QUEUES[2]}
        await instance.release()


async def test_what_could_not_be_unlocked_is_unlocked_later_and_not_locked_again() -> None:
    """The broker was unreachable for the commit, so it gets no further request."""
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES)))
        peer.on(UNLOCK, hang_up, answer())
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        locks.start(lambda _refused: None)
        await locks.lock(QUEUES)
        assert await locks.unlock(QUEUES[2:], ["broker-0"]) == set()
        assert await locks.unlock(QUEUES[1:2]) == {"broker-0"}
        assert len(peer.received[UNLOCK]) == 1
        await instance.pool.connection(peer.address)
        locks.renew_soon()
        [*_, renewal] = await peer.wait_for(LOCK, 2)
        assert QueueLockRequest.from_json(renewal.body).queues == QUEUES[:1]
        [*_, second] = await peer.wait_for(UNLOCK, 2)
        assert sorted(QueueLockRequest.from_json(second.body).queues) == QUEUES[1:]
        await eventually(lambda: not locks._to_unlock)
        await locks.lock(QUEUES)
        locks.renew_soon()
        await peer.wait_for(LOCK, 4)
        assert len(peer.received[UNLOCK]) == 2
        await locks.stop()
        await instance.release()


async def test_queues_of_a_broker_that_is_gone_or_of_a_topic_that_is_unknown_are_ours() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues([])))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        strange = [MessageQueue("t", "broker-9", 0), MessageQueue("u", "broker-0", 0)]
        assert await locks.lock([*QUEUES, *strange]) == set(strange)
        await locks.unlock(strange)
        assert peer.received[UNLOCK] == []
        await instance.release()


async def test_nothing_is_given_back_to_a_broker_without_a_connection() -> None:
    async with ScriptedPeer() as peer, ScriptedPeer() as broker:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(3, broker))
        instance = ClientInstance.acquire(ClientConfig(peer.address))
        await instance.routes.find("t")
        locks = QueueLocks(instance, "g")
        await locks.unlock(QUEUES)
        assert broker.received[UNLOCK] == []
        broker.on(LOCK, answer(body=encode_locked_queues(QUEUES)))
        await locks.lock(QUEUES)
        await locks.unlock(QUEUES)
        assert len(broker.received[UNLOCK]) == 1
        await instance.release()


async def test_locks_are_renewed_until_they_are_unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.client.consumer.handover._RENEWAL_S", 0.01)
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES)))
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        locks.start(lambda _refused: None)
        await locks.lock(QUEUES)
        await peer.wait_for(LOCK, 3)
        await locks.unlock(QUEUES[1:])
        after = len(peer.received[LOCK])
        [*_, last] = await peer.wait_for(LOCK, after + 2)
        assert QueueLockRequest.from_json(last.body).queues == QUEUES[:1]
        await locks.stop()
        await instance.release()


async def test_what_another_member_got_meanwhile_is_reported_once_there_is_a_connection_again() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, *[answer(body=encode_locked_queues(QUEUES[first:])) for first in (0, 2, 0)])
        instance = await connected(peer)
        locks, refused = QueueLocks(instance, "g"), asyncio.Queue[set[MessageQueue]]()
        locks.start(lambda queues: refused.put_nowait(set(queues)))
        assert await locks.lock(QUEUES) == set(QUEUES)
        locks.renew_soon()
        assert await refused.get() == set(QUEUES[:2])
        assert await locks.lock(QUEUES) == set(QUEUES)
        await locks.stop()
        await instance.release()


async def test_a_broker_that_does_not_answer_does_not_give_away_what_it_has_refused() -> None:
    async with ScriptedPeer() as peer:
        peer.on(LOCK, answer(body=encode_locked_queues(QUEUES[:1])), hang_up)
        instance = await connected(peer)
        locks = QueueLocks(instance, "g")
        assert await locks.lock(QUEUES) == set(QUEUES[:1])
        assert await locks.lock(QUEUES) == set(QUEUES[:1])
        await locks.unlock(QUEUES)
        assert await locks.lock(QUEUES) == set(QUEUES)
        await instance.release()
