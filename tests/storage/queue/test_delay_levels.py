"""Delay levels, and the due times in the queues of delayed messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.errors import ConfigError
from raptormq.protocol.delay_levels import DEFAULT_LEVELS, parse_delay_levels
from raptormq.protocol.tags import tag_hash
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from raptormq.storage.config import StoreConfig
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import MessageStore


def test_levels_are_times() -> None:
    assert parse_delay_levels("1s 5s 2m 1h 1d") == (1000, 5000, 120_000, 3_600_000, 86_400_000)
    assert len(parse_delay_levels(DEFAULT_LEVELS)) == 18


@pytest.mark.parametrize(("text", "part"), [("1s 5x", "'5x' is not a time such as 30s"), (" ", "is empty")])
def test_what_is_no_time_is_refused(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parse_delay_levels(text)


async def test_the_queues_keep_due_times_and_a_rebuild_gives_the_same(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path, segment_size=1 << 20, delays_ms=(1000, 5000))
    store = MessageStore(config, clock=lambda: 100)
    store.open()
    record = PendingRecord(SCHEDULE_TOPIC, 1, b"x", b"TAGS\x01A\x02DELAY\x012\x02", tag_hash("A"))
    store.append([record, record._replace(queue_id=2), record._replace(topic="t"), record])
    store.dispatch()
    assert await store.tag_codes(SCHEDULE_TOPIC, 1, 0, 9) == [5100, 5100]
    assert await store.tag_codes(SCHEDULE_TOPIC, 1, 1, 1) == [5100]
    assert await store.tag_codes(SCHEDULE_TOPIC, 2, 0, 9) == [tag_hash("A")]  # an unconfigured level
    assert await store.tag_codes("t", 1, 0, 9) == [tag_hash("A")]
    store.close()
    for file in tmp_path.glob("consumequeue/*/*/*"):
        file.unlink()
    (tmp_path / "abort").write_text("1")  # after a crash, queues are rebuilt from the log
    again = MessageStore(config, clock=lambda: 200)
    again.open()
    assert await again.tag_codes(SCHEDULE_TOPIC, 1, 0, 9) == [5100, 5100]
    assert await again.tag_codes("t", 1, 0, 9) == [tag_hash("A")]
    assert await again.tag_codes(SCHEDULE_TOPIC, 1, 2, 9) == await again.tag_codes("nowhere", 0, 0, 9) == []
    again.close()
