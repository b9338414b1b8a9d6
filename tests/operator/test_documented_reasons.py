"""docs/guides/operator.md explains exactly the existing reasons."""

from __future__ import annotations

import re
from pathlib import Path

from raptormq_operator.conditions import Concern, Reason

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "operator.md"


def test_the_table_of_reasons_is_complete() -> None:
    rows = re.findall(
        r"^\| ([A-Z]\w+) \| (?:both|BrokerCluster|Topic|SparkPipeline) \|",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert sorted(rows) == sorted(Reason)


def test_the_table_of_further_conditions_is_complete() -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("## Conditions beside Ready") : text.index("## Clients and the command line")]
    assert sorted(re.findall(r"^\| ([A-Z]\w+) \|", part, re.MULTILINE)) == sorted(Concern)
