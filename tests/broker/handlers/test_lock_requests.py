"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ with a clock: an unresponsive consumer loses its queues after a minute."""

from __future__ import annotations

from typing import cast

import pytest

from raptormq.broker.clients.queue_locks import QueueLocks
from raptormq.broker.clients.registry import ClientRegistry, HeartbeatSender
from raptormq.broker.config.config import QUEUE_LOCK_MS
from raptormq.broker.handlers.locks import LockHandlers
from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import ConsumerData
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_locked_queues
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.transport.connection import Connection

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)
NOBODY = cast("Connection", None)


class Locker:
    """The handlers with a clock that tests set."""

    def __init__(self) -> None:
        self.now = 0
        self.locks = QueueLocks()
        self.registry = ClientRegistry[Connection]()
        self._handlers = LockHandlers(self.locks, self.registry, lambda: self.now)

    def lock(self, client: str, *queues: MessageQueue, group: str = "g") -> list[MessageQueue]:
        command = RemotingCommand(
            RequestCode.LOCK_BATCH_MQ, {}, QueueLockRequest(group, client, list(queues)).to_json()
        )
        answer = self._handlers.lock(NOBODY, command, None)
        assert isinstance(answer, RemotingCommand)
        return decode_locked_queues(answer.body)

    def unlock(self, client: str, *queues: MessageQueue) -> None:
        body = QueueLockRequest("g", client, list(queues)).to_json()
        answer = self._handlers.unlock(NOBODY, RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, {}, body), None)
        assert isinstance(answer, RemotingCommand)
        assert answer.code == 0

    def refuse(self, body: bytes) -> None:
        with pytest.raises(BodyError):
            self._handlers.lock(NOBODY, RemotingCommand(RequestCode.LOCK_BATCH_MQ, {}, body), None)


def test_a_dead_owner_keeps_its_queues_for_a_minute_and_not_longer() -> None:
    locker = Locker()
    assert locker.lock("dead", Q0, Q1) == [Q0, Q1]
    locker.now = QUEUE_LOCK_MS
    assert locker.lock("heir", Q0, Q1) == []
    locker.now = QUEUE_LOCK_MS + 1
    assert locker.lock("heir", Q0) == [Q0]
    assert locker.lock("dead", Q0, Q1) == [Q1]  # it was only slow


def test_what_a_client_reads_is_free_when_it_has_left_its_group() -> None:
    locker, claims = Locker(), "%RETRY%g"
    presence = HeartbeatSender("reader", NOBODY, language=12, version=0, now_ms=0)
    locker.registry.heartbeat_consumer(ConsumerData("g"), presence)
    assert locker.lock("reader", Q0, group=claims) == [Q0]
    assert locker.lock("other", Q0, group=claims) == []
    locker.registry.unregister(NOBODY, "reader", None, "g")
    assert locker.lock("other", Q0, group=claims) == [Q0]


def test_who_asks_again_in_time_stays_the_owner() -> None:
    locker = Locker()
    for locker.now in range(0, 5 * QUEUE_LOCK_MS, 20_000):
        assert locker.lock("alive", Q0) == [Q0]
        assert locker.lock("other", Q0) == []


def test_a_late_farewell_takes_nothing_from_the_next_owner() -> None:
    locker = Locker()
    locker.lock("slow", Q0)
    locker.now = QUEUE_LOCK_MS + 1
    assert locker.lock("next", Q0) == [Q0]
    locker.unlock("slow", Q0)
    assert locker.lock("third", Q0) == []
    locker.unlock("next", Q0)
    assert locker.lock("third", Q0) == [Q0]


def test_a_body_that_is_none_is_refused() -> None:
    locker = Locker()
    for body in (
        b"",
        b"[]",
        b'{"consumerGroup":"g","clientId":"c","mqSet":5}',
        b'{"mqSet":[{"topic":"t"}]}',
        b'{"consumerGroup":"g","clientId":null}',
    ):
        locker.refuse(body)
    assert len(locker.locks) == 0
