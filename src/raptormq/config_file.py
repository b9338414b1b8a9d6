"""Settings files: `key = value` text decoded into typed dataclasses, shared by the broker and the name server.

A settings class is a frozen dataclass whose fields are declared by :func:`setting`. A field whose type is a settings
class is a group, which is read from the same file. Keys are RocketMQ's (``BrokerConfig``, ``MessageStoreConfig``,
``NamesrvConfig``), so an existing ``broker.conf`` works unchanged. An invalid value raises
:class:`~raptormq.errors.ConfigError`. An unknown key is reported as a warning with the most similar known key, because
it is usually a typing error.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from raptormq.errors import ConfigError
from raptormq.files import OWNER_ONLY, DiskFiles, make_durable_folder, replace_file

Settings = TypeVar("Settings")
Parser = Callable[[str], Any]

_KEYS = "keys"
_PARSE = "parse"
_LIVE = "live"
_SIZE = re.compile(r"([0-9]+)([KMGT]?)(?:I?B)?")
_COUNT = re.compile(r"([0-9]+)([KM]?)")
_TRAILING_COMMENT = re.compile(r"\s#")
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_ESCAPED = str.maketrans(
    {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
    | {char: f"\\u{ord(char):04x}" for char in "\v\f\x1c\x1d\x1e\x85\u2028\u2029"}  # these end lines for Python
)
_BYTE_ORDER_MARK = "\ufeff"
_UNDECODED = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as decoded by ``surrogateescape``."""
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


# --- the text -------------------------------------------------------------------------------------------------------


def parse_properties(text: str) -> dict[str, str]:
    """Return the pairs of a Java properties text. The last line of a key wins.

    A byte order mark at the beginning is skipped. ``#`` and ``!`` start a comment line, ``=`` or ``:`` (or white space)
    ends the key, a backslash at the end of a line joins the next one and elsewhere escapes a character (``\\uXXXX``
    included).

    Raises:
        ConfigError: an escape is invalid, or is an unpaired surrogate. The message contains the key but not the value.
    """
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split_pair(line)
        try:
            pairs[_unescape(key)] = _unescape(value).strip()
        except ConfigError as error:
            raise ConfigError(f"setting {key!a}: {error}") from None
    return pairs


def read_properties(path: Path) -> dict[str, str]:
    """Return the pairs of a properties file.

    Raises:
        ConfigError: the file cannot be read, or a line other than a comment is not UTF-8 text.
    """
    return parse_properties(read_text(path))


def read_text(path: Path) -> str:
    """Return the text of a properties file. Comments may have any encoding; their bytes that are not UTF-8 are decoded
    by ``surrogateescape``, so that :func:`write_file` writes them unchanged.

    Raises:
        ConfigError: the file cannot be read, or a line other than a comment is not UTF-8 text.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"cannot read settings file {path}: {error.strerror}") from error
    number = 1
    for raw, line in _raw_and_logical_lines(text):
        if found := _UNDECODED.search(line):
            number += raw[: raw.index(found[0])].count("\n")
            raise ConfigError(f"settings file {path} is not UTF-8 text in line {number}: save the file as UTF-8")
        number += raw.count("\n")
    return text


def _logical_lines(text: str) -> Iterable[str]:
    return (line for _, line in _raw_and_logical_lines(text) if line)


def _raw_and_logical_lines(text: str) -> Iterable[tuple[str, str]]:
    """Yield the raw text of each logical line and its joined form, which is empty for comments and blank lines."""
    held = joined = ""
    for raw in text.splitlines(keepends=True):
        held += raw
        line = joined + raw.removeprefix(_BYTE_ORDER_MARK).splitlines()[0].lstrip()
        joined = ""
        comment = not line or line[0] in "#!"
        if not comment and (len(line) - len(line.rstrip("\\"))) % 2:
            joined = line[:-1]
            continue
        yield held, "" if comment else line
        held = ""
    if held:  # a backslash at the end of the text
        yield held.rstrip("\r\n").removesuffix("\\"), joined


def _split_pair(line: str) -> tuple[str, str]:
    escaped = False
    for position, char in enumerate(line):
        if not escaped and char in "=: \t":
            rest = line[position:].lstrip(" \t")
            return line[:position], rest[1:].lstrip(" \t") if rest[:1] in ("=", ":") else rest
        escaped = char == "\\" and not escaped
    return line, ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        escape = next(chars, "")
        if escape != "u":
            out.append(_ESCAPES.get(escape, escape))
            continue
        digits = "".join(next(chars, "") for _ in range(4))
        try:
            out.append(chr(int(digits, 16)))
        except ValueError:
            raise ConfigError("an escape is not \\u and four hexadecimal digits") from None
    joined = "".join(out)
    try:
        return joined.encode("utf-16", "surrogatepass").decode("utf-16")  # a surrogate pair is one character
    except UnicodeDecodeError:
        raise ConfigError("an escape is an unpaired surrogate") from None


# --- writing --------------------------------------------------------------------------------------------------------


def format_properties(pairs: Mapping[str, str]) -> str:
    """Return ``key=value`` lines, sorted by key. Backslashes and line ends in values are escaped, keys are not."""
    return "".join(_format_pair(key, pairs[key]) for key in sorted(pairs))


def changed_properties(text: str, changes: Mapping[str, str]) -> str:
    """Return a properties text with the values of ``changes``. Existing keys are changed in place and new ones are
    appended; all other lines, including comments, are unchanged.
    """
    left = dict(changes)
    kept: list[str] = []
    for raw, line in _raw_and_logical_lines(text):
        key = _unescape(_split_pair(line)[0])
        if key in left:
            kept.append(_format_pair(key, left.pop(key)))
        elif key not in changes:
            kept.append(raw)
    if left and kept and not kept[-1].endswith("\n"):
        kept.append("\n")
    return "".join(kept) + "".join(_format_pair(key, value) for key, value in left.items())


def write_file(path: Path, text: str) -> None:
    """Replace the file ``path`` by ``text`` (UTF-8, or bytes of :func:`read_text`) atomically; durable on return. Its
    folder is created if necessary. The permissions of an existing file are kept. A new file is readable only by its
    owner, because settings may contain secrets.

    Raises:
        ConfigError: the folder or the file cannot be written.
    """
    path = path.absolute()
    try:
        files = DiskFiles(stat.S_IMODE(path.stat().st_mode) if path.exists() else OWNER_ONLY)
        make_durable_folder(files, str(path.parent))
        replace_file(files, str(path), text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def _format_pair(key: str, value: str) -> str:
    return f"{key}={value.translate(_ESCAPED)}\n"


# --- values ---------------------------------------------------------------------------------------------------------


def parse_bool(text: str) -> bool:
    """Parse ``true`` or ``false``. Any other text is an error, whereas Java would read it as false."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def switched_off(text: str) -> bool:
    """Parse ``false``. ``true`` is an error, because this version does not have the feature."""
    if parse_bool(text):
        raise ValueError("false, because this version does not have the feature")
    return False


def plain_text(text: str) -> str:
    """Return the text unchanged. A comment behind a value is an error: in properties files it is part of the value."""
    if _TRAILING_COMMENT.search(text):
        raise ValueError("a value without a comment: comments are lines that begin with #")
    return text


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A parser of whole numbers from ``minimum`` to ``maximum``."""

    convert: Callable[[str], int]
    """Raises ValueError for a text that is not a number."""
    minimum: int
    maximum: int
    expected: str
    """Description of the valid values."""

    def __call__(self, text: str) -> int:
        try:
            value = self.convert(text)
        except ValueError:
            value = self.minimum - 1
        if not self.minimum <= value <= self.maximum:
            raise ValueError(self.expected)
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class Clamp:
    """A parser that replaces a number outside of ``minimum`` to ``maximum`` by the nearest of them. The replacement is
    reported by :func:`clamp_warnings`.
    """

    number: Number
    """Parser of the numbers that are accepted."""
    minimum: int
    maximum: int
    reason: str
    """Completes the warning: "counts as 95, …"."""

    def __call__(self, text: str) -> int:
        return min(max(self.number(text), self.minimum), self.maximum)


def integer(minimum: int, maximum: int) -> Number:
    """Return a parser of decimal integers from ``minimum`` to ``maximum``."""
    return Number(int, minimum, maximum, f"a whole number from {minimum} to {maximum}")


def clamped(minimum: int, maximum: int) -> Clamp:
    """Return a parser of decimal integers in which RocketMQ clamps the setting to ``minimum`` to ``maximum``."""
    return Clamp(integer(-(1 << 31), (1 << 31) - 1), minimum, maximum, f"because the range is {minimum} to {maximum}")


def count(minimum: int, maximum: int) -> Number:
    """Return a parser of counts: a whole number, optionally followed by K or M (powers of 1024)."""
    expected = f"a whole number from {minimum} to {maximum}, with K (1024) or M if you like"
    return Number(partial(_with_unit, _COUNT), minimum, maximum, expected)


def size(minimum: int, maximum: int = 1 << 50) -> Number:
    """Return a parser of byte counts: a whole number, optionally followed by K, M, G or T (powers of 1024)."""
    expected = f"a size in bytes from {minimum} to {maximum}, with K, M or G if you like"
    return Number(partial(_with_unit, _SIZE), minimum, maximum, expected)


def _with_unit(pattern: re.Pattern[str], text: str) -> int:
    matched = pattern.fullmatch(text.upper())
    if matched is None:
        raise ValueError("no number with a unit")
    return int(matched[1]) * _SIZE_UNITS[matched[2]]


def size_up_to(most: int) -> Clamp:
    """Return a parser of positive byte counts like :func:`size`; larger values are lowered to ``most``."""
    return Clamp(size(1), 1, most, "because clients accept frames of 16M")


def size_or_none(minimum: int) -> Parser:
    """Return a parser of byte counts like :func:`size` that also accepts 0, which disables the feature."""
    parse_any = size(0)

    def parse(text: str) -> int:
        value: int = parse_any(text)
        if 0 < value < minimum:
            raise ValueError(f"0, or a size in bytes from {minimum >> 20}M, with an optional suffix K, M or G")
        return value

    return parse


def choice(*allowed: str) -> Parser:
    """Return a parser that accepts only the words ``allowed``."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return text

    return parse


# --- classes of settings --------------------------------------------------------------------------------------------


def setting(default: Any, *keys: str, parse: Parser = plain_text, live: bool = False) -> Any:
    """Declare a setting: its default or default factory, its key followed by aliases, and its parser.

    A parser raises ValueError with a description of the expected value. A ``live`` setting may change while the program
    runs (:func:`change_live`); its class must not be frozen.
    """
    metadata = {_KEYS: keys, _PARSE: parse, _LIVE: live}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def known_keys(cls: type[Any]) -> set[str]:
    """Return all keys, including aliases, of the class and its groups."""
    keys: set[str] = set()
    for field, group in _fields(cls):
        keys |= known_keys(group) if group else set(field.metadata[_KEYS])
    return keys


def load_settings(cls: type[Settings], pairs: Mapping[str, str]) -> Settings:
    """Return an instance of ``cls`` with the values of ``pairs``. Unknown keys are ignored
    (:func:`unknown_key_warnings`).

    Raises:
        ConfigError: a value is invalid. The message contains the key, the value and the expected value.
    """
    values: dict[str, Any] = {}
    for field, group in _fields(cls):
        if group:
            values[field.name] = load_settings(group, pairs)
            continue
        for key in field.metadata[_KEYS]:
            if key in pairs:
                values[field.name] = parse_setting(key, pairs[key], field.metadata[_PARSE])
                break
    return cls(**values)


def clamp_warnings(cls: type[Any], pairs: Mapping[str, str]) -> list[str]:
    """Return a warning for each value of ``pairs`` that a :class:`Clamp` of the class or its groups replaces. All
    values must be valid.
    """
    warnings: list[str] = []
    for field, group in _fields(cls):
        if group:
            warnings += clamp_warnings(group, pairs)
            continue
        parse, key = field.metadata[_PARSE], next(filter(pairs.__contains__, field.metadata[_KEYS]), None)
        if isinstance(parse, Clamp) and key is not None and (value := parse(pairs[key])) != parse.number(pairs[key]):
            warnings.append(f"setting {key} = {pairs[key]!r} counts as {value}, {parse.reason}")
    return warnings


def dump_settings(settings: Any) -> dict[str, str]:
    """Return the settings as pairs with their first keys, the inverse of :func:`load_settings`."""
    pairs: dict[str, str] = {}
    for field, group in _fields(type(settings)):
        value = getattr(settings, field.name)
        if group:
            pairs |= dump_settings(value)
        else:
            pairs[field.metadata[_KEYS][0]] = _text(value)
    return pairs


def first_keys(cls: type[Any]) -> dict[str, str]:
    """Return for each key, including aliases, the first key of its setting, which takes precedence in a file."""
    found: dict[str, str] = {}
    for field, group in _fields(cls):
        found |= first_keys(group) if group else dict.fromkeys(field.metadata[_KEYS], field.metadata[_KEYS][0])
    return found


def live_keys(cls: type[Any]) -> set[str]:
    """Return the (first) keys of the settings that may change while the program runs."""
    keys: set[str] = set()
    for field, group in _fields(cls):
        keys |= live_keys(group) if group else {field.metadata[_KEYS][0]} if field.metadata[_LIVE] else set()
    return keys


def change_live(settings: Any, wanted: Any) -> tuple[set[str], set[str]]:
    """Copy the live settings from ``wanted``, an instance of the same class.

    Returns the keys that have changed, and the keys that differ but require a restart.
    """
    changed: set[str] = set()
    waiting: set[str] = set()
    for field, group in _fields(type(settings)):
        ours, theirs = getattr(settings, field.name), getattr(wanted, field.name)
        if group:
            more_changed, more_waiting = change_live(ours, theirs)
            changed |= more_changed
            waiting |= more_waiting
        elif ours != theirs:
            if field.metadata[_LIVE]:
                setattr(settings, field.name, theirs)
            (changed if field.metadata[_LIVE] else waiting).add(field.metadata[_KEYS][0])
    return changed, waiting


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def unknown_key_warnings(pairs: Mapping[str, str], known: set[str]) -> list[str]:
    """Return a warning for each key that is not in ``known``, with the most similar known key if there is one."""
    lowered = {key.lower(): key for key in known}
    warnings: list[str] = []
    for key in pairs:
        if key in known:
            continue
        near = difflib.get_close_matches(key.lower(), lowered, n=1, cutoff=0.7)
        hint = f", did you mean {lowered[near[0]]}?" if near else ""
        warnings.append(f"unknown setting {key} is ignored{hint}")
    return warnings


def _fields(cls: type[Any]) -> list[tuple[dataclasses.Field[Any], type[Any] | None]]:
    hints = get_type_hints(cls)
    found: list[tuple[dataclasses.Field[Any], type[Any] | None]] = []
    for field in dataclasses.fields(cls):
        if _KEYS in field.metadata:
            found.append((field, None))
        elif dataclasses.is_dataclass(hints[field.name]):
            found.append((field, hints[field.name]))
    return found


def parse_setting(key: str, text: str, parse: Parser) -> Any:
    """Return the value of ``key``, parsed by ``parse``.

    Raises:
        ConfigError: the value is invalid.
    """
    try:
        return parse(text)
    except ConfigError as error:  # its message does not contain the value
        raise ConfigError(f"setting {key}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"setting {key} = {text!r} is not usable: expected {error}") from None
