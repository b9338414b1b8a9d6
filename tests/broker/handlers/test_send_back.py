"""CONSUMER_SEND_MSG_BACK: retries, dead letters, and refused requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from tests.broker.harness import Peer, bodies, connected, messages, running, saved

LEVELS = {"messageDelayLevel": "1s 1s 1s 1h"}


async def send_back(peer: Peer, offset: int, **fields: object) -> RemotingCommand:
    return await peer.call(36, {"offset": offset, "group": "g", "delayLevel": 0, **fields})


async def test_a_message_comes_again_from_the_retry_topic_with_its_history(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 1, "TAGS\x01a\x02KEYS\x01k\x02", h=5)
        (first,) = messages(await peer.pull("t", 0, 1))
        assert (await send_back(peer, first.physical_offset)).code == 0
        (again,) = messages(await peer.pull("%RETRY%g", 0, wait_ms=20_000))
        found = decode_properties(again.properties)
        assert (again.body, again.flag, again.reconsume_times) == (b"x", 5, 1)
        assert (again.born_timestamp, again.born_host) == (first.born_timestamp, first.born_host)
        assert (found["RETRY_TOPIC"], found["TAGS"], found["KEYS"], found["DELAY"]) == ("t", "a", "k", "3")
        assert found["ORIGIN_MESSAGE_ID"].endswith(f"{first.physical_offset:016X}")
        assert (await send_back(peer, again.physical_offset, delayLevel=2)).code == 0
        (third,) = messages(await peer.pull("%RETRY%g", 1, wait_ms=20_000))
        history = decode_properties(third.properties)
        assert (third.reconsume_times, history["RETRY_TOPIC"], history["DELAY"]) == (2, "t", "2")
        assert history["ORIGIN_MESSAGE_ID"] == found["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize(("times", "level"), [(0, 3), (1, 4), (2, 5), (14, 17), (15, 18), (16, 18), (98, 18)])
async def test_without_a_level_a_message_waits_longer_each_time(tmp_path: Path, times: int, level: int) -> None:
    async with running(tmp_path, {"messageDelayLevel": " ".join(["1h"] * 18)}) as broker, connected(broker) as peer:
        await peer.send("t", b"x", j=times)
        assert (await send_back(peer, 0, maxReconsumeTimes=99)).code == 0
        (waiting,) = messages(await peer.pull(SCHEDULE_TOPIC, 0, level - 1))
        assert (waiting.reconsume_times, decode_properties(waiting.properties)["DELAY"]) == (times + 1, str(level))


@pytest.mark.parametrize("fields", [{"maxReconsumeTimes": 0}, {"delayLevel": -1}])
async def test_too_many_times_or_a_negative_level_makes_a_dead_letter_at_once(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"poison", 0)
        assert (await send_back(peer, 0, **fields)).code == 0
        (letter,) = messages(await peer.pull("%DLQ%g", 0))
        assert (letter.body, letter.reconsume_times) == (b"poison", 1)


async def test_the_limit_of_the_group_counts_when_the_consumer_names_none(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"poison", 0, j=15)
        await peer.send("t", b"poison", 0, j=16)
        (almost, full) = messages(await peer.pull("t", 0))
        assert (await send_back(peer, almost.physical_offset)).code == 0
        assert (await peer.pull("%DLQ%g", 0)).code == 17
        assert (await send_back(peer, full.physical_offset)).code == 0
        assert [letter.reconsume_times for letter in messages(await peer.pull("%DLQ%g", 0))] == [17]


async def test_what_cannot_be_given_back_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0)
        assert (await send_back(peer, 0)).code == 26
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await send_back(peer, 0, group="not a name")).code == 29
        for nowhere in (-1, 7, 1 << 50):
            refused = await send_back(peer, nowhere)
            assert (refused.code, f"look message by offset failed, {nowhere}" in str(refused.remark)) == (1, True)
        assert (await peer.call(36, {"group": "g", "delayLevel": 0})).code == 1


async def test_what_a_consumer_has_of_a_topic_that_was_deleted_meanwhile_comes_again(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.heartbeat("client", "g", "t")
        await peer.send("t", b"x", 0)
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        assert (await send_back(peer, 0, delayLevel=1)).code == 0
        assert bodies(await peer.pull("%RETRY%g", 0, wait_ms=20_000)) == [b"x"]


async def test_a_limit_that_is_no_number_is_none(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        assert (await peer.send("%RETRY%g", b"again", 0, "DELAY\x011\x02", j=3, l="9" * 5_000)).code == 0
        assert bodies(await peer.pull("%RETRY%g", 0, wait_ms=20_000)) == [b"again"]


async def test_a_send_to_a_retry_topic_beyond_the_limit_is_a_dead_letter_without_delay(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("%RETRY%g", b"again", 0, "DELAY\x011\x02", j=3, l=3)
        await peer.send("%RETRY%g", b"dead", 0, "DELAY\x011\x02", j=4, l=3)
        assert [letter.body for letter in messages(await peer.pull("%DLQ%g", 0))] == [b"dead"]
        assert [message.body for message in messages(await peer.pull("%RETRY%g", 0, wait_ms=20_000))] == [b"again"]


async def test_retries_go_to_queues_that_the_retry_topic_has(tmp_path: Path) -> None:
    """The group may get more queues later, from which no consumer would read."""
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.heartbeat("client", "g", "t")
        await peer.send("t", b"x", 0)
        more = b'{"groupName":"g","retryQueueNums":1000}'
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, more)).code == 0
        assert (await send_back(peer, 0, delayLevel=1)).code == 0
        assert bodies(await peer.pull("%RETRY%g", 0, wait_ms=20_000)) == [b"x"]


async def test_a_value_with_a_separator_is_no_reason_to_refuse(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0, "a\x01b\x01c\x02")
        assert (await send_back(peer, 0, delayLevel=1)).code == 0
        (again,) = messages(await peer.pull("%RETRY%g", 0, wait_ms=20_000))
        assert decode_properties(again.properties)["a"] == "b\x01c"


async def test_the_topic_of_a_dead_letter_is_saved_before_it_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        for number in range(5):
            await peer.heartbeat("client", f"g{number}", "t")
        for number in range(5):
            assert (await peer.send(f"%RETRY%g{number}", b"poison", 0, j=99)).code == 0
            topics = loads_object(saved(tmp_path / "config" / "topics.json"))["topicConfigTable"]
            assert f"%DLQ%g{number}" in topics
            assert bodies(await peer.pull(f"%DLQ%g{number}", 0)) == [b"poison"]
