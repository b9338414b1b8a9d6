"""Parsing of the options of source and sink. No I/O.

An option table maps each option to a field and a parser. Option names are case-insensitive. An unknown name is an
error, because a misspelt `failOnDataLoss` must not be ignored.
`options` and `sink.options` have one table each; `connection` has the common entries.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pyspark_raptormq.errors import OptionError
from raptormq.errors import ConfigError, MessageError
from raptormq.protocol.topic_names import check_group

OptionTable = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Option name -> field name and parser. A parser raises `ValueError`, `ConfigError` or `MessageError` for invalid
text."""

TABLE_HINT = (
    "Spark does not pass the options of a catalog's table to Python data sources: use CREATE TEMPORARY VIEW name USING "
    'raptormq OPTIONS (...), or spark.read.format("raptormq") with its options and load()'
)
"""What to use instead of a table of a catalog."""
_TABLE_OPTION = "option."
_TABLE_PROVIDER = "provider"
_SIZE = re.compile(r"(\d{1,18})\s*([kmgKMG]?)[bB]?")
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024, "g": 1024 * 1024 * 1024}
LARGEST_SIZE = 64 * 1024 * 1024
_LONGEST_MS = 2**31 - 1
_HIGHEST = 10**18 - 1
_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|min|h|d)?")
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def canonical_names(raw: Mapping[str, str], table: Collection[str], ignored: Collection[str] = ()) -> dict[str, str]:
    """Return the option texts with the spelling of the table. Options in `ignored` (lower case) are omitted.

    Raises:
        OptionError: A name is unknown, or the options are those of CREATE TABLE.
    """
    if _are_of_a_table(raw):
        raise OptionError(f"a table of a catalog cannot use raptormq. {TABLE_HINT}")
    known = {name.lower(): name for name in table}
    given: dict[str, str] = {}
    for name, text in raw.items():
        canonical = known.get(name.lower())
        if canonical is not None:
            given[canonical] = str(text)
        elif name.lower() not in ignored:
            raise OptionError(f"unknown option {name!r}{nearest(name, known.values())}")
    return given


def _are_of_a_table(raw: Mapping[str, str]) -> bool:
    """Return whether Spark creates a table of its catalog: it then passes the table's properties, and each option again
    with a prefix. For a read of the table it creates the data source again, without any of them.

    Source: `V2SessionCatalog.createTable` and `PythonDataSourceV2.getTable` of Spark 4.3.
    """
    names = [name.lower() for name in raw]
    return _TABLE_PROVIDER in names or any(name.startswith(_TABLE_OPTION) for name in names)


def parse_values(given: Mapping[str, str], table: OptionTable) -> dict[str, Any]:
    """Parse the option texts. Return values by field name.

    Raises:
        OptionError: A text is invalid.
    """
    values: dict[str, Any] = {}
    for name, text in given.items():
        field, parse = table[name]
        try:
            values[field] = parse(text)
        except (ConfigError, MessageError, ValueError) as error:
            raise OptionError(f"option {name}: {error}") from error
    return values


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an error message: the most similar known name, or else all known names."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else f"; known are {', '.join(sorted(by_lower.values()))}"


def check_at_most_one(given: Collection[str], names: Iterable[str]) -> None:
    """Check that at most one of several mutually exclusive options is set.

    Raises:
        OptionError: Two of them are set.
    """
    present = [name for name in names if name in given]
    if len(present) > 1:
        raise OptionError(f"options {present[0]} and {present[1]} exclude each other")


def text_of(what: str) -> Callable[[str], str]:
    """Return a parser for text that is not blank."""

    def parse(text: str) -> str:
        if not text.strip():
            raise ValueError(f"names no {what}")
        return text.strip()

    return parse


def group_name(text: str) -> str:
    """Parse the name of a producer group or consumer group."""
    group = text_of("group")(text)
    check_group(group)
    return group


def at_least(lowest: int, highest: int = _HIGHEST) -> Callable[[str], int]:
    """Return a parser for integers from `lowest` to `highest`."""
    limits = f"of at least {lowest}" if highest == _HIGHEST else f"from {lowest} to {highest}"

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*\d{1,18}\s*", text) or not lowest <= int(text) <= highest:
            raise ValueError(f"must be a whole number {limits}, not {text!r:.40}")
        return int(text)

    return parse


def size(largest: int = LARGEST_SIZE) -> Callable[[str], int]:
    """Return a parser for buffer sizes such as 64k or 4m, from 1 KiB to `largest` bytes."""

    def parse(text: str) -> int:
        found = _bytes(text)
        if not 1024 <= found <= largest:
            raise ValueError(f"must be a size from 1k to {largest // _SIZE_UNITS['m']}m, not {text!r:.40}")
        return found

    return parse


def amount(text: str) -> int:
    """Parse an amount of data such as 64k, 4m or 2g, without an upper limit. Return bytes."""
    found = _bytes(text)
    if found < 1:
        raise ValueError(f"must be a size such as 64k, 4m or 2g, not {text!r:.40}")
    return found


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0


def milliseconds(text: str) -> float:
    """Parse a number of milliseconds. Return seconds."""
    return at_least(1, _LONGEST_MS)(text) / 1000


def duration(text: str) -> float:
    """Parse a duration such as 500ms, 30s, 15m or 1h; the default unit is milliseconds, as in Spark. Return seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be a time such as 500ms, 30s, 15m or 1h, not {text!r:.40}")
    return int(match[1]) * _DURATION_UNITS[match[2] or "ms"]


def boolean(text: str) -> bool:
    """Parse true or false."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r:.40}")
    return word == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """Return a case-insensitive parser for one of several words."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}, not {text!r:.40}")
        return word

    return parse
