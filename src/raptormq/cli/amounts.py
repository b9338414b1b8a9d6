"""Option types for quantities with units: rates, sizes and times."""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

_THOUSANDS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZES = {"": 1, "b": 1} | {f"{unit}b": factor for unit, factor in (_THOUSANDS | _BINARY).items()} | _BINARY
_RATES = {"": 1, "k": 10**3, "m": 10**6}
_TIMES = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AMOUNT = re.compile(r"([0-9]{1,15}(?:,[0-9]{3})*(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)")


def rate(text: str) -> float:
    """Convert a rate in messages per second: ``100000``, ``100,000``, ``100k``, ``1.5M``, ``20k/s``."""
    examples = "a rate in messages per second above 0, such as 500, 20k or 1.5M"
    return _amount(text.removesuffix("/s"), text, _RATES, examples)


def size(text: str) -> float:
    """Convert a size to bytes: ``1000``, ``1kB`` (1,000), ``1KiB`` or ``1Ki`` (1,024)."""
    unit = text.lstrip("0123456789.,").strip()
    if unit.lower() in _THOUSANDS:
        number = text.removesuffix(unit).strip()
        raise click.BadParameter(
            f"{text!r} is ambiguous: use {number}{unit}B (powers of 1,000) or {number}{unit}iB (powers of 1,024)"
        )
    return _amount(text, text, _SIZES, "a size in bytes above 0, such as 1000, 1kB or 1KiB")


def time_span(text: str) -> float:
    """Convert a time span to seconds: ``90min``, ``72h``, ``3d``, ``1w``."""
    return _amount(text, text, _TIMES, "a time above 0 with its unit, such as 90min, 72h, 3d or 1w")


def _amount(text: str, given: str, units: Mapping[str, int], expected: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    value = float(match[1].replace(",", "")) * factor if match and factor else 0.0
    if not value > 0:
        raise click.BadParameter(f"{given!r} is not {expected}")
    return value
