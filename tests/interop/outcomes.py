"""How scenarios end on Apache RocketMQ, and where ours may end otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REFERENCE_FILE = Path(__file__).with_name("reference_outcomes.json")
ALLOWED_FILE = Path(__file__).with_name("allowed_differences.json")

REFERENCE: dict[str, dict[str, Any]] = json.loads(REFERENCE_FILE.read_text(encoding="utf-8"))
"""Client and scenario ("go/Produce") -> part of the outcome -> what it is on Apache RocketMQ."""
ALLOWED: dict[str, dict[str, dict[str, Any]]] = json.loads(ALLOWED_FILE.read_text(encoding="utf-8"))
"""Client and scenario -> part of the outcome -> {"ours": what it is on ours, "reason": why}."""


def expected(name: str) -> dict[str, Any]:
    """The outcome that a scenario must have on ours."""
    return REFERENCE[name] | {part: allowed["ours"] for part, allowed in ALLOWED.get(name, {}).items()}
