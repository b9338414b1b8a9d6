"""Kubernetes quantities: ``250m``, ``1.5Gi``, ``20G``. Kubernetes writes a fractional number of bytes, such as
1.3333Gi, in thousandths, millionths (``1431619973939200u``) or billionths of a byte."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_SUFFIXES = {
    "n": Decimal("0.000000001"),
    "u": Decimal("0.000001"),
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(n|u|m|k|[MGTPE]|[KMGTPE]i)?")


def quantity(value: Any) -> Decimal | None:
    """Parse a quantity; return None for any other value."""
    if isinstance(value, bool):
        return None
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int) else None
    return Decimal(match[1]) * _SUFFIXES[match[2] or ""] if match else None
