"""Lists and objects that are members of a body, where Java writes ``null``, or leaves out, what is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raptormq.errors import BodyError


def list_at(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list ``name`` of ``body``; raises :class:`BodyError` for anything else."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{name} is not a list: {value!r:.80}")
    return value


def object_at(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object ``name`` of ``body``; raises :class:`BodyError` for anything else."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BodyError(f"{name} is not an object: {value!r:.80}")
    return value
