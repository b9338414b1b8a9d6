"""Heartbeats, group members and notifications: how clients learn of each other through the broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from raptormq.protocol.bodies.heartbeat import decode_consumer_ids
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import Peer, assembly_of, connected, running
from tests.clock import Clock


async def members(peer: Peer) -> list[str]:
    answer = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    return decode_consumer_ids(answer.body) if answer.code == 0 else []


async def noticed(peer: Peer) -> dict[str, str]:
    notice = await asyncio.wait_for(peer.notices.get(), 10)
    assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert notice.is_oneway
    return notice.ext_fields


async def test_the_first_heartbeat_creates_group_and_retry_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.heartbeat("me", "g", "t")
        retry = await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%g"})
        group = await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert (answer.code, answer.version) == (0, 479)
    assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "true"}
    assert (retry.code, group.code) == (0, 0)
    assert b'"readQueueNums":1' in retry.body


async def test_everybody_hears_of_a_newcomer_and_of_a_leaver(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as one:
        await one.heartbeat("one", "g", "t")
        assert await noticed(one) == {"consumerGroup": "g"}
        async with connected(broker) as two:
            await two.heartbeat("two", "g", "t")
            assert await noticed(one) == await noticed(two) == {"consumerGroup": "g"}
            assert await members(one) == ["one", "two"]
            await two.heartbeat("two", "g", "t")
            assert two.notices.empty()
        await noticed(one)
        assert await members(one) == ["one"]


async def test_a_farewell_leaves_the_group_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as one, connected(broker) as two:
        await one.heartbeat("one", "g", "t")
        await two.heartbeat("two", "g", "t")
        farewell: dict[str, object] = {"clientID": "two", "producerGroup": "producers", "consumerGroup": "g"}
        assert (await two.call(RequestCode.UNREGISTER_CLIENT, farewell)).code == 0
        assert await members(one) == ["one"]
        assert [await noticed(one) for _ in range(3)] == [{"consumerGroup": "g"}] * 3


async def test_nobody_says_farewell_for_another(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as one, connected(broker) as two:
        await one.heartbeat("one", "g", "t")
        await two.heartbeat("two", "g", "t")
        farewell: dict[str, object] = {"clientID": "one", "producerGroup": "producers", "consumerGroup": "g"}
        assert (await two.call(RequestCode.UNREGISTER_CLIENT, farewell)).code == 0
        assert await members(one) == ["one", "two"]
        producers = await one.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "producers"})
        assert [each["clientId"] for each in json.loads(producers.body)["connectionSet"]] == ["one", "two"]


async def test_a_repeated_heartbeat_makes_a_deleted_group_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for _ in range(2):
            await peer.heartbeat("me", "g", "t")
        assert (await peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})).code == 0
        await peer.heartbeat("me", "g", "t")
        group = await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert group.code == 0


async def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer for this group, g" in (answer.remark or "")


async def test_notices_can_be_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path, {"notifyConsumerIdsChangedEnable": "false"}) as broker, connected(broker) as peer:
        await peer.heartbeat("one", "g", "t")
        assert await members(peer) == ["one"]
        assert peer.notices.empty()
    group = b'{"groupName":"g","notifyConsumerIdsChangedEnable":false}'
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
        await peer.heartbeat("one", "g", "t")
        assert await members(peer) == ["one"]
        assert peer.notices.empty()


async def test_unknown_groups_may_be_left_out(tmp_path: Path) -> None:
    async with running(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker, connected(broker) as peer:
        assert (await peer.heartbeat("me", "g", "t")).code == 0
        assert await members(peer) == []
        await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"g"}')
        assert (await peer.heartbeat("me", "g", "t")).code == 0
        assert await members(peer) == ["me"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"clientID":"x","consumerDataSet":[1]}', b"\xff\xfe"])
async def test_a_heartbeat_that_is_none_is_refused(tmp_path: Path, body: bytes) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        refused = await peer.call(RequestCode.HEART_BEAT, None, body)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "internal error" not in (refused.remark or "")


async def test_a_silent_client_is_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, {"channelExpiredTimeout": "1"}) as broker, connected(broker) as peer:
        await peer.heartbeat("one", "g", "t")
        assembly = assembly_of(broker)
        while await members(peer):
            assembly.clients.expire()
        assert await noticed(peer) == {"consumerGroup": "g"}


async def test_a_clock_that_is_set_forward_forgets_nobody(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.heartbeat("one", "g", "t")
        clock.move(3_600_000)
        assembly_of(broker).clients.expire()
        assert await members(peer) == ["one"]


@pytest.mark.parametrize(("expression_type", "code"), [("TAG", 0), ("SQL92", 1)])
async def test_check_of_a_subscription(tmp_path: Path, expression_type: str, code: int) -> None:
    body = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"t","subString":"a","expressionType":"%b"}}'
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.CHECK_CLIENT_CONFIG, None, body % expression_type.encode())
    assert answer.code == code
