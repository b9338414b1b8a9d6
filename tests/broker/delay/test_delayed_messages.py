"""Messages with a delay level: they wait in RocketMQ's queues, survive restarts, and are delivered when they are
due.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raptormq.errors import ConfigError, StoreDamaged
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.tags import tag_hash
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from tests.broker.harness import bodies, connected, messages, running, settings
from tests.clock import Clock

LEVELS = {"messageDelayLevel": "1s 2s 1h"}
SECOND_MS = 1_000


async def test_a_message_waits_for_its_level(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, LEVELS, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        sent = await peer.send("t", b"late", 3, "DELAY\x011\x02TAGS\x01a\x02")
        assert (sent.code, sent.ext_fields["queueId"]) == (0, "3")
        waiting = messages(await peer.pull(SCHEDULE_TOPIC, 0, 0))
        assert [message.body for message in waiting] == [b"late"]
        assert (await peer.pull("t", 0, 3)).code == 19
        clock.run()
        (message,) = messages(await peer.pull("t", 0, 3, wait_ms=20_000))
        assert message.body == b"late"
        assert message.store_timestamp - waiting[0].store_timestamp >= SECOND_MS
        found = decode_properties(message.properties)
        assert (found["REAL_TOPIC"], found["REAL_QID"], found["DELAY"], found["TAGS"]) == ("t", "3", "1", "a")
        tagged = await peer.pull("t", 0, 3, subscription="a")
        assert bodies(tagged) == [b"late"]
        assert (await peer.pull("t", 0, 3, subscription="b")).code == 20


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_a_level_below_1_is_no_delay(tmp_path: Path, level: str) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"now", 0, f"DELAY\x01{level}\x02")
        assert bodies(await peer.pull("t", 0)) == [b"now"]


async def test_a_level_too_high_is_the_highest(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0, "DELAY\x0199\x02")
        (message,) = messages(await peer.pull(SCHEDULE_TOPIC, 0, 2))
        assert decode_properties(message.properties)["DELAY"] == "3"


async def test_what_is_no_level_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        refused = await peer.send("t", b"x", 0, "DELAY\x01soon\x02")
        assert refused.code == 13
        assert "DELAY is 'soon'" in str(refused.remark)
        batch = await peer.call(
            320, {**dict.fromkeys("defghj", "0"), "a": "g", "b": "t", "c": "TBW102", "i": "DELAY\x011\x02"}, b"x"
        )
        assert (batch.code, batch.remark) == (13, "the messages of a batch cannot be delayed")


async def test_many_messages_of_two_levels_come_once_each_and_in_order(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        for number in range(150):
            await peer.send("t", b"%d" % number, 0, f"DELAY\x01{1 + number % 2}\x02")
        received: list[int] = []
        while len(received) < 150:
            answer = await peer.pull("t", len(received), 0, wait_ms=20_000)
            received += [int(body) for body in bodies(answer)]
        assert sorted(received) == list(range(150))
        assert [number for number in received if number % 2] == list(range(1, 150, 2))
        assert (await peer.pull("t", 150)).code == 19


async def test_a_restart_delivers_what_waits_and_nothing_twice(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, LEVELS, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"first", 0, "DELAY\x011\x02")
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"first"]
        clock.hold()
        await peer.send("t", b"second", 0, "DELAY\x011\x02")
    table = json.loads((tmp_path / "config" / "delayOffset.json").read_text())
    assert table["offsetTable"] == {"1": 1}
    clock.move(SECOND_MS)
    async with running(tmp_path, LEVELS, clock=clock) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 1, wait_ms=20_000)) == [b"second"]
        assert (await peer.pull("t", 2)).code == 19


async def test_the_message_of_a_deleted_topic_is_dropped_and_the_next_one_comes(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("gone", b"lost", 0, "DELAY\x011\x02")
        await peer.send("t", b"here", 0, "DELAY\x011\x02")
        assert (await peer.call(215, {"topic": "gone"})).code == 0
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"here"]
        assert (await peer.pull("gone", 0)).code == 17


async def test_the_tag_code_is_that_of_the_message_again(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0, "DELAY\x011\x02TAGS\x01a\x02")
        await peer.pull("t", 0, wait_ms=20_000)
        assert await broker._store.tag_codes("t", 0, 0, 9) == [tag_hash("a")]


def test_settings_that_are_no_levels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel = '1s 5x' is not usable: expected times such as"):
        settings(tmp_path, {"messageDelayLevel": "1s 5x"})


async def test_a_damaged_file_of_offsets_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable": {"one": "two"}}')
    with pytest.raises(StoreDamaged, match="scans the log for deliveries"):
        async with running(tmp_path):
            pass


async def test_progress_ahead_of_the_queue_skips_nothing(tmp_path: Path) -> None:
    """Truncate the log like a power failure."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable": {"1": 1000}}')
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await peer.send("t", b"late", 0, "DELAY\x011\x02")
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"late"]
