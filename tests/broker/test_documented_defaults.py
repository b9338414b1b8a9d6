"""docs/explanation/choices.md names the settings whose defaults differ from those of Apache RocketMQ."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raptormq.broker.config.config import BrokerConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "choices.md"
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("key", "here", "elsewhere"), ROWS)
def test_the_default_is_what_the_page_says_and_the_other_value_is_another(key: str, here: str, elsewhere: str) -> None:
    default = BrokerConfig.from_pairs({})
    assert BrokerConfig.from_pairs({key: here}) == default
    assert BrokerConfig.from_pairs({key: elsewhere}) != default


def test_the_page_has_the_table() -> None:
    assert {"transactionCheckInterval", "fileReservedTime", "flushDiskType"} <= {key for key, _, _ in ROWS}
