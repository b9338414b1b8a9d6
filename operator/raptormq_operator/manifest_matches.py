"""Whether an object of the API server already says what a manifest wants.

The server adds defaults, and other controllers add fields of their own; neither is a difference. So a manifest is
covered when each of its fields is there with an equal value. List items that carry a `name` are found by it
(containers, ports, volumes), since admission may insert others; all other lists are compared item by item.
"""

from __future__ import annotations

from typing import Any

from raptormq_operator.quantity import quantity


def manifest_matches(observed: Any, wanted: Any) -> bool:
    """True when `observed` has everything that `wanted` has. Both are JSON values."""
    if isinstance(wanted, dict):
        return isinstance(observed, dict) and all(
            (key in observed and manifest_matches(observed[key], value)) or (_is_empty(value) and key not in observed)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(observed, list) and _list_matches(observed, wanted)
    same_type = isinstance(observed, bool) == isinstance(wanted, bool)  # True == 1 in Python, not in JSON
    return same_type and (observed == wanted or _same_quantity(observed, wanted))


def _list_matches(observed: list[Any], wanted: list[Any]) -> bool:
    if wanted and all(isinstance(item, dict) and "name" in item for item in wanted):
        by_name = {item.get("name"): item for item in observed if isinstance(item, dict)}
        return all(item["name"] in by_name and manifest_matches(by_name[item["name"]], item) for item in wanted)
    return len(observed) == len(wanted) and all(map(manifest_matches, observed, wanted))


def _is_empty(value: Any) -> bool:
    """The server leaves out empty maps and lists in places where it has no use for them."""
    return value in ({}, [])


def _same_quantity(observed: Any, wanted: Any) -> bool:
    """The server writes 1000m as 1 and 1024Mi as 1Gi."""
    numbers = [quantity(value) for value in (observed, wanted)]
    return numbers[0] is not None and numbers[0] == numbers[1]
