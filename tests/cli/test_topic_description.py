"""Output of `topic describe` for configurations and offsets."""

from __future__ import annotations

import pytest

from raptormq.cli.topic_description import as_json, permission, print_description
from raptormq.client import MessageQueue, TopicConfig, TopicOffset

CONFIGS = {"broker-a": TopicConfig("t", 2, 1, 4, attributes={"message.type": "FIFO"}, topic_id="5f0c")}
STATS = {
    MessageQueue("t", "broker-a", 1): TopicOffset(5, 5),
    MessageQueue("t", "broker-a", 0): TopicOffset(10, 1_000_010, 1_714_564_800_000),
}


def test_json_has_numbers_and_milliseconds() -> None:
    assert as_json("t", CONFIGS, STATS) == {
        "topic": "t",
        "brokers": {
            "broker-a": {
                "read_queues": 2,
                "write_queues": 1,
                "perm": "r",
                "order": False,
                "attributes": {"message.type": "FIFO"},
                "id": "5f0c",
            }
        },
        "queues": [
            {
                "broker": "broker-a",
                "queue_id": 0,
                "min_offset": 10,
                "max_offset": 1_000_010,
                "last_store_timestamp": 1_714_564_800_000,
            },
            {"broker": "broker-a", "queue_id": 1, "min_offset": 5, "max_offset": 5, "last_store_timestamp": 0},
        ],
        "messages": 1_000_000,
    }


def test_the_tables_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_description("t", CONFIGS, STATS)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["topic", "t:", "1000000", "messages"] in lines
    assert ["broker-a", "2", "1", "r", "5f0c", "message.type=FIFO"] in lines
    assert ["broker-a", "0", "10", "1000010", "1000000", "2024-05-01", "12:00:00Z"] in lines
    assert ["broker-a", "1", "5", "5", "0", "-"] in lines


def test_permissions() -> None:
    assert [permission(bits) for bits in (0, 2, 4, 6, 7)] == ["-", "w", "r", "rw", "rw"]
