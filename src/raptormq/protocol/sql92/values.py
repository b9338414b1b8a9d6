"""Values of SQL92 filters and their comparison, as in Java: properties are text and constants are typed.

Types: ``None``, ``bool``, ``int`` (32 bits), :class:`Long`, ``float``, ``str``. If one operand is text, it is converted
to the type of the other. Text that cannot be converted raises :class:`ValueError`, and the message does not match,
regardless of the rest of the expression. A ``bool`` and a number are never equal and compare as "less". Source:
RocketMQ ``ComparisonExpression.__compare``, Java ``Double.compareTo``, ``Double.valueOf``.
"""

from __future__ import annotations

import math
import re

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_NAMED = {
    f"{sign}{name}": value * (-1 if sign == "-" else 1)
    for sign in ("", "+", "-")
    for name, value in (("NaN", math.nan), ("Infinity", math.inf))
}
_JAVA_WHITE_SPACE = "".join(map(chr, range(33)))
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


class Long(int):
    """An integer outside the 32 bits of Java's ``int``: text is compared with it in 64 bits."""

    __slots__ = ()


Value = bool | int | float | str | None


def integer(text: str) -> int:
    """Return the value of a literal. Raises ValueError beyond 64 bits."""
    value = _ranged(text, LONG_MIN, LONG_MAX)
    return value if INT_MIN <= value <= INT_MAX else Long(value)


def double(text: str) -> float:
    """Return the value of text as ``Double.valueOf`` parses it. Raises ValueError."""
    word = text.strip(_JAVA_WHITE_SPACE)
    if word in _NAMED:
        return _NAMED[word]
    if _DECIMAL.fullmatch(word):
        return float(word.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(word):
        mantissa, _, exponent = word.lower().partition("p")
        try:
            return float.fromhex(f"{mantissa}p{exponent.rstrip('fd')}")
        except OverflowError:
            return -math.inf if word.startswith("-") else math.inf
    raise ValueError(f"not a number: {text!r:.40}")


def negated(value: Value) -> Value:
    """Return ``-value``, or None if it is not a number."""
    kind = type(value)
    if kind is Long:
        return Long(-value)  # type: ignore[operator]  # kind is a number type
    return -value if kind is int or kind is float else None  # type: ignore[operator]


def equals(left: Value, right: Value) -> bool | None:
    """Evaluate ``left = right``: None if only the left side is missing, False if only the right side is."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return compare(left, right) == 0


def ordered(left: Value, right: Value) -> int | None:
    """Return how two operands of ``<``, ``<=``, ``>``, ``>=`` compare, or None if one is missing. Two texts compare as
    numbers.

    Raises:
        ValueError: a text is not a number.
    """
    if left is None or right is None:
        return None
    if type(left) is str and type(right) is str:
        return compare(double(left), double(right))
    return compare(left, right)


def compare(left: bool | float | str, right: bool | float | str) -> int:
    """Return a negative number, 0 or a positive number if ``left`` is less than, equal to or greater than ``right``.

    Raises:
        ValueError: the text of one side cannot be converted to the type of the other side.
    """
    left_type, right_type = type(left), type(right)
    if left_type is not right_type:
        if left_type is str:
            left = _converted(str(left), right_type)
        elif right_type is str:
            if left_type is bool:
                raise ValueError("a boolean on the left cannot be compared with text")
            right = _converted(str(right), left_type)
        elif bool in (left_type, right_type):
            return -1
    if isinstance(left, float) or isinstance(right, float):
        return _compare_doubles(float(left), float(right))
    return (left > right) - (left < right)  # type: ignore[operator]  # both are numbers, or both text


def _converted(text: str, kind: type) -> bool | int | float:
    if kind is bool:
        return text.lower() == "true"
    if kind is float:
        return double(text)
    return _ranged(text, INT_MIN, INT_MAX) if kind is int else _ranged(text, LONG_MIN, LONG_MAX)


def _ranged(text: str, low: int, high: int) -> int:
    value = int(text) if _INTEGER.fullmatch(text) else high + 1
    if not low <= value <= high:
        raise ValueError(f"not an integer in {low}..{high}: {text!r:.40}")
    return value


def _compare_doubles(left: float, right: float) -> int:
    """Compare as ``Double.compareTo``: NaN equals itself and is greater than all numbers, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key = (left != left, math.copysign(1.0, left) if left == 0.0 else 0.0)
    right_key = (right != right, math.copysign(1.0, right) if right == 0.0 else 0.0)
    return (left_key > right_key) - (left_key < right_key)
