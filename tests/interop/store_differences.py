"""Comparison of two descriptions of a store (`store_contents`), readable in the output of a failed test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

SHOWN_COUNT, SHOWN_CHARACTERS = 5, 120


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences in short form: missing and additional items of lists and tables."""
    shown: dict[str, Any] = {}
    for name in sorted({*found, *wanted}):
        ours, theirs = found.get(name), wanted.get(name)
        if ours == theirs:
            continue
        if isinstance(ours, list | dict) and isinstance(theirs, list | dict):
            counted, due = _counted(ours), _counted(theirs)
            shown[name] = {"missing": _first(due - counted), "too much": _first(counted - due)}
        else:
            shown[name] = {"found": ours, "wanted": theirs}
    return shown


def _counted(items: list[Any] | dict[Any, Any]) -> Counter[str]:
    return Counter(repr(item)[:SHOWN_CHARACTERS] for item in (items.items() if isinstance(items, dict) else items))


def _first(items: Counter[str]) -> str:
    return f"{items.total()}: {sorted(items.elements())[:SHOWN_COUNT]}"
