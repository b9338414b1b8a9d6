"""The tag code of a record that only the log has."""

from __future__ import annotations

import pytest

from raptormq.errors import ConfigError
from raptormq.protocol.tags import tag_hash
from raptormq.storage.tag_codes import parse_delay_levels, tag_code_of

DELAYS = parse_delay_levels("1s 5s 2m 1h 1d")


def test_levels_are_times() -> None:
    assert DELAYS == (1000, 5000, 120_000, 3_600_000, 86_400_000)
    assert parse_delay_levels("") == ()
    with pytest.raises(ConfigError, match="'5x' is not a time such as 30s"):
        parse_delay_levels("1s 5x")


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("topic", "TAGS\x01A\x02", tag_hash("A")),
        ("topic", "TAGS\x01A\x02DELAY\x012\x02", tag_hash("A")),
        ("topic", "", 0),
        ("SCHEDULE_TOPIC_XXXX", "TAGS\x01A\x02DELAY\x012\x02", 100 + 5000),
        ("SCHEDULE_TOPIC_XXXX", "DELAY\x0199\x02", 100 + 86_400_000),
        ("SCHEDULE_TOPIC_XXXX", "TAGS\x01A\x02DELAY\x010\x02", tag_hash("A")),
        ("SCHEDULE_TOPIC_XXXX", "TAGS\x01A\x02DELAY\x01soon\x02", tag_hash("A")),
    ],
)
def test_tag_codes(topic: str, properties: str, expected: int) -> None:
    assert tag_code_of(topic, properties, 100, DELAYS) == expected
