"""Typed access to the members of a JSON body. Java peers write ``null``, or omit a member, if it is empty.

Flags are decoded as tolerantly as Java's fastjson does (``TypeUtils.castToBoolean``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raptormq.errors import BodyError

_FLAGS = {"true": True, "1": True, "y": True, "t": True, "false": False, "0": False, "n": False, "f": False}


def list_at(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list ``name`` of ``body``, empty if it is missing. Raises :class:`BodyError` for other types."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{name} is not a list: {value!r:.80}")
    return value


def names_at(body: Mapping[str, Any], name: str) -> list[str]:
    """Return the list of strings ``name`` of ``body`` without repetitions, empty if it is missing. Raises
    :class:`BodyError` for other types.
    """
    names = list_at(body, name)
    for each in names:
        if not isinstance(each, str):
            raise BodyError(f"{name} has an element that is not a string: {each!r:.80}")
    return list(dict.fromkeys(names))


def object_at(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object ``name`` of ``body``, empty if it is missing. Raises :class:`BodyError` for other types."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BodyError(f"{name} is not an object: {value!r:.80}")
    return value


def text_at(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return the string ``name`` of ``body``, or ``default`` if it is missing or empty.

    Raises :class:`BodyError` for other types, and if it is missing and there is no default.
    """
    value = body.get(name)
    if default is not None and (value is None or value == ""):
        return default
    if not isinstance(value, str):
        raise BodyError(f"{name} is not a string: {value!r:.80}")
    return value


def parse_integer(value: Any) -> int:
    """Return an integer that may be given as text. Raises :class:`BodyError` for anything else, including
    1.5 and true.
    """
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BodyError(f"not an integer: {value!r:.80}")
    return value


def flag_at(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return the flag ``name`` of ``body``, which may be a number or text. Raises :class:`BodyError` for values that
    fastjson does not accept as a flag.
    """
    value = body.get(name)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return int(value) == 1
    text = value.lower() if isinstance(value, str) else value
    if text is None or text in ("", "null"):
        return default
    flag = _FLAGS.get(text) if isinstance(text, str) else None
    if flag is None:
        raise BodyError(f"{name} is neither true nor false: {value!r:.80}")
    return flag
