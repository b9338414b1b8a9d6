"""Offsets of groups and bounds of queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.metrics import lag
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import Peer, connected, messages, running

QUEUE: dict[str, object] = {"topic": "t", "queueId": 0}
GROUP: dict[str, object] = QUEUE | {"consumerGroup": "g"}


async def query(peer: Peer, **more: object) -> tuple[int, str | None]:
    answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, GROUP | more)
    return answer.code, answer.ext_fields.get("offset")


async def test_an_offset_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        peer.oneway(RequestCode.UPDATE_CONSUMER_OFFSET, GROUP | {"commitOffset": 1})
        assert await query(peer) == (0, "1")
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await query(peer) == (0, "1")


async def test_a_new_group_starts_at_zero_on_a_young_topic_only(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert await query(peer) == (0, "0")
        assert await query(peer, setZeroIfNotFound="true") == (0, "0")
        assert await query(peer, setZeroIfNotFound="false") == (ResponseCode.QUERY_NOT_FOUND, None)
        assert await query(peer, queueId=1) == (ResponseCode.QUERY_NOT_FOUND, None)


async def test_a_new_group_chooses_its_start_in_a_topic_whose_first_message_is_deep_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "_IN_MEMORY_BYTES", 1)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert await query(peer) == (ResponseCode.QUERY_NOT_FOUND, None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 9}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": -1}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "bad group"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_bad_updates_are_refused(tmp_path: Path, change: dict[str, object], code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        refused = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, GROUP | {"commitOffset": 1} | change)
        assert refused.code == code
        assert await query(peer) == (0, "0")


async def test_an_unknown_group_cannot_commit_where_groups_are_not_created(tmp_path: Path) -> None:
    async with running(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        refused = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, GROUP | {"commitOffset": 1})
    assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_bounds_of_a_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        first = messages(await peer.pull("t", 0))[0]
        found = {
            code: (await peer.call(code, QUEUE)).ext_fields
            for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME)
        }
        empty = {code: (await peer.call(code, QUEUE | {"queueId": 3})).ext_fields for code in found}
    assert list(found.values()) == [{"offset": "3"}, {"offset": "0"}, {"timestamp": str(first.store_timestamp)}]
    assert list(empty.values()) == [{"offset": "0"}, {"offset": "0"}, {"timestamp": "-1"}]


async def test_search_by_time(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        await peer.send("t", b"2")
        stored = [message.store_timestamp for message in messages(await peer.pull("t", 0))]

        async def search(timestamp: int, **more: object) -> int:
            fields = QUEUE | {"timestamp": timestamp} | more
            answer = await peer.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
            return int(answer.ext_fields["offset"])

        assert await search(0) == 0
        assert await search(stored[-1] + 1) == 3
        assert await search(stored[-1] + 1, boundaryType="UPPER") == 2
        assert await search(0, boundaryType="UPPER") == 0
        assert await search(stored[0], boundaryType="LOWER") == 0
        assert await search(0, queueId=3) == 0
