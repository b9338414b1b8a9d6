"""Validation of values against their type annotations.

Without validation, values of a wrong type have late effects: with `"BROADCASTING"` instead of a `MessageModel` the
consumer does not broadcast, and a string instead of a number ends the task that uses it. `mypy` finds such errors only
if it is used. Used by the classes of `config`, and by constructors and methods with single values. Java clients need no
such checks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from raptormq.errors import ConfigError

_INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Range of a number: above 0, or from 0 with `zero`, up to `most`; the default is the maximum of Java's int.

    Infinity and NaN are out of range.
    """

    most: int = _INT_MAX
    zero: bool = False

    def contains(self, number: float) -> bool:
        """Whether the number is within the limits."""
        return 0 < number <= self.most or (self.zero and number == 0)

    def __str__(self) -> str:
        return f"{'from 0' if self.zero else 'above 0'}, at most {self.most}"


_NAMES = {bool: "True or False", str: "text", NoneType: "None"}

Count = Annotated[int, Limits()]
CountOrZero = Annotated[int, Limits(zero=True)]
Seconds = Annotated[float, Limits()]
SecondsOrZero = Annotated[float, Limits(zero=True)]
Milliseconds = Annotated[int, Limits(LONG_MAX, zero=True)]
"""A time in milliseconds since 1970."""


def check_settings(settings: Any, kind: Any = None) -> None:
    """Validate all fields of a dataclass, including nested dataclasses. Fields added by subclasses of the application
    are not checked.

    Raises:
        ConfigError: a value does not match its annotation; the text names the field and what is expected.
    """
    kind = kind or settings.__class__
    kinds = _kinds(kind)
    for each in fields(kind):
        value = getattr(settings, each.name)
        check_setting(each.name, value, kinds[each.name], shown=each.repr)
        for inner in _alternatives(kinds[each.name]):
            if is_dataclass(inner) and _matches(value, inner):
                check_settings(value, inner)


def check_setting(name: str, value: object, kind: Any, *, shown: bool = True) -> None:
    """Check one value; `kind` is an annotation: a class, one of the numbers above, or a union of them (`A | None`).
    With `shown` the error may contain the value.

    Raises:
        ConfigError: the value does not match.
    """
    kinds = _alternatives(kind)
    if not any(_matches(value, each) for each in kinds):
        # A wrong value for an object, such as credentials or keys, may be a secret.
        given = repr(value) if shown and any(map(_is_plain, kinds)) else type(value).__name__
        raise ConfigError(f"{name} must be {' or '.join(map(_described, kinds))}, not {given}")


def checked_timeout(timeout: float) -> float:
    """Return the timeout of a call.

    Raises:
        ConfigError: `timeout` is not a number of seconds above 0.
    """
    if type(timeout) is not float or not 0 < timeout <= _INT_MAX:  # fast path for the usual case
        check_setting("timeout", timeout, Seconds)
    return timeout


@cache
def _kinds(settings: Any) -> dict[str, Any]:
    return get_type_hints(settings, include_extras=True)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _matches(value: object, kind: Any) -> bool:
    if get_origin(kind) is not Annotated:
        return isinstance(value, get_origin(kind) or kind)
    number, limits = get_args(kind)
    # A bool is an int to Python, and an int is a float to type checkers.
    return isinstance(value, int | number) and not isinstance(value, bool) and limits.contains(value)


def _is_plain(kind: Any) -> bool:
    """Return whether the annotation is a number, string, boolean or enum."""
    return get_origin(kind) is Annotated or (isinstance(kind, type) and issubclass(kind, bool | str | enum.Enum))


def _described(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        number, limits = get_args(kind)
        return f"a {'whole number' if number is int else 'number'} {limits}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(map(str, kind))
    return _NAMES.get(kind) or str(getattr(kind, "__name__", kind))
