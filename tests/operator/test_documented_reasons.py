"""docs/guides/operator.md explains every reason, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from raptormq_operator.conditions import Reason

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "operator.md"


def test_the_table_of_reasons_is_complete() -> None:
    rows = re.findall(
        r"^\| ([A-Z]\w+) \| (?:both|BrokerCluster|Topic) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(rows) == sorted(Reason)
