"""Outcomes of scenarios with Apache RocketMQ, permitted differences of RaptorMQ, and a comparison.

A part of an outcome is one of its entries, a question with its answer. The parts of the client "raw" are [code, remark]
of a response. Both are compared, but if Apache RocketMQ reports a Java exception, the text of RaptorMQ may differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

REFERENCE_FILE = Path(__file__).with_name("reference_outcomes.json")
ALLOWED_FILE = Path(__file__).with_name("allowed_differences.json")

REFERENCE: dict[str, dict[str, Any]] = json.loads(REFERENCE_FILE.read_text(encoding="utf-8"))
"""Client and scenario ("go/Produce") -> part of the outcome -> its value with Apache RocketMQ."""
ALLOWED: dict[str, dict[str, dict[str, Any]]] = json.loads(ALLOWED_FILE.read_text(encoding="utf-8"))
"""Client and scenario -> part of the outcome -> {"ours": its value with RaptorMQ (raw: the code), "reason": the
reason}.
"""
OTHER_WORDS = "the remark describes the invalid field; the remark of Apache RocketMQ is the text of an exception"
EXCEPTION = "<a Java exception>"
"""Replacement of a Java exception in outcomes."""


class Difference(NamedTuple):
    """A part that differs from Apache RocketMQ."""

    part: str
    ours: Any
    theirs: Any
    reason: str | None
    """Reason of a permitted difference; None if it is not permitted."""


BEFORE = "-53/"
"""Suffix of the name of an older client, which has the reference of the newest one."""


def reference_of(name: str) -> str:
    """Return the name of the reference of a client and scenario."""
    return name.replace(BEFORE, "/")


def differences(name: str, outcome: Mapping[str, Any]) -> list[Difference]:
    """Return the parts that differ from the reference, in order."""
    name = reference_of(name)
    found = []
    for part in sorted({*outcome, *REFERENCE[name]}):
        ours, theirs = outcome.get(part), REFERENCE[name].get(part)
        if ours != theirs:
            found.append(Difference(part, ours, theirs, _reason(name, part, ours, theirs)))
    return found


def _reason(name: str, part: str, ours: Any, theirs: Any) -> str | None:
    is_raw = name.startswith("raw/")
    allowed = ALLOWED.get(name, {}).get(part)
    if allowed is not None:
        reason: str = allowed["reason"]
        return reason if allowed["ours"] == (ours[0] if is_raw else ours) else None
    if is_raw and ours[0] == theirs[0] and ours[1] and theirs[1] == EXCEPTION:
        return OTHER_WORDS
    return None
