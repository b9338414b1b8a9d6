"""Pulls with SQL92 filters: set by heartbeat or by the pull, held and immediate, refused and bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from tests.broker.harness import Peer, bodies, connected, held, pull_fields, running

ON = {"enablePropertyFilter": "true"}
LONG = 20_000


async def announce(peer: Peer, expression: str, kind: str = "SQL92", version: int = 1) -> None:
    subscription = Subscription("t", expression, version=version, expression_type=kind)
    data = HeartbeatData("me", consumers=[ConsumerData("consumers", subscriptions=[subscription])])
    assert (await peer.call(RequestCode.HEART_BEAT, None, data.to_json())).code == 0


async def send_priced(peer: Peer, *prices: int) -> None:
    for price in prices:
        await peer.send("t", b"%d" % price, properties=f"price\x01{price}\x02")


async def by_sql(peer: Peer, expression: str, offset: int = 0, **more: int) -> RemotingCommand:
    fields = pull_fields("t", offset) | {"subscription": expression, "expressionType": "SQL92"} | more
    return await peer.call(RequestCode.PULL_MESSAGE, fields)


async def test_the_filter_of_a_heartbeat_and_of_a_pull(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as broker, connected(broker) as peer:
        await send_priced(peer, 5, 10, 15, 20)
        await announce(peer, "price > 10")
        announced = await peer.pull("t", 0, sysFlag=0, subVersion=1)
        carried = await by_sql(peer, "price <= 10")
        nobody = await by_sql(peer, "price > 20")
    assert bodies(announced) == [b"15", b"20"]
    assert bodies(carried) == [b"5", b"10"]
    assert (nobody.code, nobody.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "4")


async def test_count_and_bytes_bound_what_is_wanted(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as broker, connected(broker) as peer:
        await send_priced(peer, 1, 9, 1, 9, 9)
        two = await by_sql(peer, "price = 9", maxMsgNums=2)
        one = await by_sql(peer, "price = 9", maxMsgBytes=1)
    assert (bodies(two), two.ext_fields["nextBeginOffset"]) == ([b"9", b"9"], "4")
    assert (bodies(one), one.ext_fields["nextBeginOffset"]) == ([b"9"], "3")


async def test_a_large_filter_reads_fewer_messages_at_a_time(tmp_path: Path) -> None:
    large = " OR ".join(["price = 5"] * 512)
    async with running(tmp_path, ON) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"x"] * 300)
        first = await by_sql(peer, large)
    assert (first.code, first.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert first.ext_fields["nextBeginOffset"] == str(100_000 // 1024)


async def test_long_properties_are_read_of_fewer_messages_at_a_time(tmp_path: Path) -> None:
    searching = " OR ".join(["long CONTAINS 'b'"] * 512)  # may read 64 KiB of properties
    async with running(tmp_path, ON) as broker, connected(broker) as peer:
        for _ in range(3):
            await peer.send("t", b"x", properties="long\x01" + "a" * 30_000 + "\x02")
        first = await by_sql(peer, searching)
        second = await by_sql(peer, searching, offset=2)
    assert [each.code for each in (first, second)] == [ResponseCode.PULL_RETRY_IMMEDIATELY] * 2
    assert [each.ext_fields["nextBeginOffset"] for each in (first, second)] == ["2", "3"]


async def test_a_held_pull_stays_held_over_messages_that_it_does_not_want(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as broker, connected(broker) as peer, connected(broker) as producer:
        await send_priced(producer, 1)
        waiting = asyncio.ensure_future(by_sql(peer, "price > 10", offset=1, sysFlag=6, suspendTimeoutMillis=LONG))
        await held(peer, 1)
        await send_priced(producer, 2, 3)
        assert not waiting.done()
        await send_priced(producer, 11)
        woken = await waiting
    assert (bodies(woken), woken.ext_fields["nextBeginOffset"]) == ([b"11"], "4")


async def test_a_held_pull_that_nothing_comes_for_ends_behind_what_it_did_not_want(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as broker, connected(broker) as peer, connected(broker) as producer:
        await send_priced(producer, 1)
        waiting = asyncio.ensure_future(by_sql(peer, "price > 10", offset=1, sysFlag=6, suspendTimeoutMillis=300))
        await held(peer, 1)
        await send_priced(producer, 2)
        cancel_and_wait = await waiting
    assert (cancel_and_wait.code, cancel_and_wait.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "2")


@pytest.mark.parametrize(
    ("pairs", "expression", "kind", "code"),
    [
        (ON, "price >", "SQL92", ResponseCode.FILTER_DATA_NOT_EXIST),
        (ON, "price > 1", "SQL99", ResponseCode.FILTER_DATA_NOT_EXIST),
        ({}, "price >", "SQL92", ResponseCode.FILTER_DATA_NOT_EXIST),
        ({}, "price > 1", "SQL92", ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_bad_filter_of_a_heartbeat(
    tmp_path: Path, pairs: dict[str, str], expression: str, kind: str, code: int
) -> None:
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        await send_priced(peer, 1)
        await announce(peer, expression, kind)
        assert (await peer.pull("t", 0, sysFlag=0, subVersion=1)).code == code


@pytest.mark.parametrize(
    ("expressions", "code"),
    [
        (["price > 1", ""], ResponseCode.FILTER_DATA_NOT_LATEST),
        (["price > 1", "price >", ""], ResponseCode.FILTER_DATA_NOT_EXIST),
        (["price > 1", "price >"], ResponseCode.FILTER_DATA_NOT_EXIST),
        ([""], ResponseCode.FILTER_DATA_NOT_EXIST),
        (["price > 1", "", "price > 1"], ResponseCode.SUCCESS),
    ],
)
async def test_filters_of_heartbeats_one_after_the_other(tmp_path: Path, expressions: list[str], code: int) -> None:
    async with running(tmp_path, ON) as broker, connected(broker) as peer:
        await send_priced(peer, 5)
        for version, expression in enumerate(expressions, 1):
            await announce(peer, expression, version=version)
        assert (await peer.pull("t", 0, sysFlag=0, subVersion=len(expressions))).code == code


async def test_a_bad_filter_of_a_pull(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as broker, connected(broker) as peer:
        await send_priced(peer, 1)
        refused = await by_sql(peer, "price > 'text'")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "only numbers and properties" in (refused.remark or "")


@pytest.mark.parametrize(
    ("pairs", "expression", "code", "remark"),
    [
        (ON, "a BETWEEN 1 AND 2", 0, None),
        (ON, "a BETWEEN 2 AND 1", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "BETWEEN 2 AND 1 is never true"),
        ({}, "a = 1", 1, "The broker does not support consumer to filter message by SQL92"),
    ],
)
async def test_check_of_a_filter(
    tmp_path: Path, pairs: dict[str, str], expression: str, code: int, remark: str | None
) -> None:
    subscription = Subscription("t", expression, version=1, expression_type="SQL92")
    body = dumps({"clientId": "me", "group": "consumers", "subscriptionData": subscription.to_dict()})
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)
    assert (answer.code, answer.remark) == (code, remark)
