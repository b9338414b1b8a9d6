"""Redelivery after a delay: by timers of RocketMQ 5, otherwise by the next delay level."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client import ClientConfig, ConsumerConfig, MessageExt, MessageQueue, Retry, RetryKind
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.delayed_retry import LEVEL_DELAYS_S, DelayedRetry, level_not_below
from raptormq.client.interceptors import ConsumeChain
from raptormq.errors import MessageError, ServerError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.properties import decode_properties
from raptormq.transport.connection import Connection
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, refuse, route, stored

SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2
V4_9_7, V5_0_0 = 407, 413


def of_version(version: int) -> Reply:
    def reply(connection: Connection, request: RemotingCommand) -> None:
        response = response_to(request)
        response.ext_fields, response.version = {"offset": "1"}, version
        connection.send(response)

    return reply


def message(reconsume_times: int = 0, **properties: str) -> MessageExt:
    queue = MessageQueue("t", "broker-0", 2)
    return MessageExt("t", b"body", properties, queue, 7, 4711, "id", "offset id", 1, 2, reconsume_times)


@asynccontextmanager
async def retries(peer: ScriptedPeer, version: int) -> AsyncIterator[DelayedRetry]:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(4, peer))
    peer.on(RequestCode.GET_MAX_OFFSET, of_version(version))
    instance = ClientInstance.acquire(ClientConfig(peer.address))
    try:
        yield DelayedRetry(instance, "g", ConsumerConfig(max_reconsume_times=5), ConsumeChain("g", ()))
    finally:
        await instance.release()


async def test_a_broker_of_rocketmq_5_gets_a_timer() -> None:
    async with ScriptedPeer() as peer, retries(peer, V5_0_0) as retrying:
        peer.on(SEND, stored())
        earlier = {"TIMER_DELAY_MS": "9", "TIMER_OUT_MS": "8", "DELAY": "4", "mine": "x"}
        assert await retrying.retry(message(1, **earlier), 2.5) == Retry(RetryKind.TIMER, 2.5)
        assert await retrying.retry(message(1, **earlier), 0) == Retry(RetryKind.AT_ONCE)
        timed, at_once = (decode_properties(sent.ext_fields["i"]) for sent in peer.received[SEND])
        assert timed == {"mine": "x", "TIMER_DELAY_MS": "2500", "RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "id"}
        assert at_once == {"mine": "x", "RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "id"}
        assert len(peer.received[RequestCode.GET_MAX_OFFSET]) == 1


async def test_an_older_broker_gets_the_next_level() -> None:
    async with ScriptedPeer() as peer, retries(peer, V4_9_7) as retrying:
        peer.on(SEND_BACK, answer())
        assert await retrying.retry(message(), 2.5) == Retry(RetryKind.LEVEL, 5, 2)
        assert await retrying.retry(message(), None) == Retry(RetryKind.LEVEL, 10, 3)
        assert [sent.ext_fields["delayLevel"] for sent in peer.received[SEND_BACK]] == ["2", "0"]
        assert not peer.received[SEND]
        with pytest.raises(MessageError, match=r"longest delay level has 7,200 s: retry with a shorter delay"):
            await retrying.retry(message(), 7201)


async def test_timers_that_are_switched_off_fall_back_to_a_level() -> None:
    async with ScriptedPeer() as peer, retries(peer, V5_0_0) as retrying:
        peer.on(SEND, refuse(ResponseCode.MESSAGE_ILLEGAL))
        peer.on(SEND_BACK, answer())
        assert await retrying.retry(message(), 61) == Retry(RetryKind.LEVEL, 120, 6)


async def test_when_all_ways_fail_the_last_error_is_raised() -> None:
    async with ScriptedPeer() as peer, retries(peer, V4_9_7) as retrying:
        peer.on(SEND_BACK, refuse(ResponseCode.NO_PERMISSION))
        peer.on(SEND, refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(ServerError, match="code 13"):
            await retrying.retry(message(), 3)
        assert [decode_properties(sent.ext_fields["i"])["DELAY"] for sent in peer.received[SEND]] == ["2"]


async def test_the_last_delivery_is_followed_by_a_dead_letter_without_a_delay() -> None:
    async with ScriptedPeer() as peer, retries(peer, V5_0_0) as retrying:
        peer.on(SEND, stored())
        assert await retrying.retry(message(5), 60) == Retry(RetryKind.DEAD_LETTER)
        await retrying.dead_letter(message(1), "reason")
        last, early = peer.received[SEND]
        assert [sent.ext_fields["j"] for sent in (last, early)] == ["6", "6"]
        assert decode_properties(early.ext_fields["i"])["DLQ_REASON"] == "reason"
        for sent in (last, early):
            assert not {"DELAY", "TIMER_DELAY_MS"} & decode_properties(sent.ext_fields["i"]).keys()


@pytest.mark.parametrize(
    ("seconds", "level"), [(0.001, 1), (1, 1), (1.001, 2), (10, 3), (59.9, 5), (60, 5), (601, 15), (7200, 18)]
)
def test_the_level_is_never_shorter(seconds: float, level: int) -> None:
    assert level_not_below(seconds) == level
    assert LEVEL_DELAYS_S[level - 1] >= seconds
    assert len(LEVEL_DELAYS_S) == 18
