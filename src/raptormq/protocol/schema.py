"""Declarations of headers: a dataclass from which decoder, encoder and checks are generated.

A header is a dataclass derived from :class:`Header`. Field names are snake_case. The wire name is the camelCase form
unless ``wire("x")`` says otherwise. The type determines the text form: ``str``, ``int`` (32 or 64 bit alike), ``bool``
("true"/"false"). A field without a default is required. A field with default ``None`` is omitted when it is ``None``::

    @dataclass(slots=True)
    class PullMessageRequestHeader(Header):
        consumer_group: str
        queue_id: int
        max_msg_bytes: int | None = None

Decoder and encoder of each class are compiled on first use, because the send path decodes a dozen fields per message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_type_hints

from raptormq.errors import HeaderError

_WIRE_NAME = "wire_name"
_MISSING = dataclasses.MISSING
_INT64 = 1 << 63


class Header:
    """Base of all header declarations; subclasses are dataclasses with ``slots=True``."""

    __slots__ = ()


H = TypeVar("H", bound=Header)


def wire(name: str, default: Any = _MISSING) -> Any:
    """Declare a field whose wire name is not the camelCase form of its name."""
    return dataclasses.field(default=default, metadata={_WIRE_NAME: name})


def encode_header(header: Header) -> dict[str, str]:
    """Return the ext fields of a header; ``None`` is omitted."""
    cls = type(header)
    codec = _codecs.get(cls) or _codec(cls)
    return codec[0](header)


def decode_header(cls: type[H], ext_fields: dict[str, str]) -> H:
    """Build a ``cls`` from ext fields; unknown fields are ignored.

    Raises:
        HeaderError: a required field is missing or a value does not have the declared type. The message names the
            field.
    """
    codec = _codecs.get(cls) or _codec(cls)
    header: H = codec[1](ext_fields)
    return header


_Codec = tuple[Callable[[Any], dict[str, str]], Callable[[dict[str, str]], Any]]
_codecs: dict[type, _Codec] = {}


def _codec(cls: type) -> _Codec:
    codec = _codecs[cls] = _encoder(cls), _decoder(cls)
    return codec


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _fields(cls: type) -> list[tuple[str, str, type, Any]]:
    hints = get_type_hints(cls)
    found: list[tuple[str, str, type, Any]] = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        kind = next((arg for arg in get_args(hint) if arg is not type(None)), hint)
        if kind not in (str, int, bool):
            raise TypeError(f"{cls.__name__}.{field.name}: a header field must be str, int or bool, not {kind}")
        found.append((field.name, field.metadata.get(_WIRE_NAME, _camel(field.name)), kind, field.default))
    return found


def _encoder(cls: type) -> Callable[[Any], dict[str, str]]:
    """Compile the encoder: ``v = header.a`` and ``if v is not None: ext["a"] = str(v)`` for every field."""
    lines = ["ext = {}"]
    for name, wire_name, kind, _ in _fields(cls):
        text = "'true' if v else 'false'" if kind is bool else "str(v)"
        lines += [f"v = header.{name}", f"if v is not None: ext[{wire_name!r}] = {text}"]
    return _compiled("header", [*lines, "return ext"], {})


def _decoder(cls: type) -> Callable[[dict[str, str]], Any]:
    """Compile the decoder: ``v0 = ext["a"]; v1 = int(ext["b"]); …``. On an error, a slow path finds the invalid
    field."""
    fields = _fields(cls)
    lines: list[str] = ["get = ext.get"]
    required_integers: list[str] = []
    for index, (_, wire_name, kind, default) in enumerate(fields):
        convert = {str: "{}", int: "int({})", bool: "({}.lower() == 'true')"}[kind]
        if default is _MISSING:
            lines.append(f"v{index} = {convert.format(f'ext[{wire_name!r}]')}")
            if kind is int:
                required_integers.append(f"v{index}")
        else:
            lines.append(f"v{index} = get({wire_name!r})")
            lines.append(f"if v{index} is None: v{index} = default{index}")
            lines.append(f"else: v{index} = {convert.format(f'v{index}')}")
            if kind is int:
                lines.append(f"if v{index} and v{index} >> 63: in_range(v{index})")
    if required_integers:  # a longer integer would fail later, in a struct; negative ones are rare
        lines.append(f"if ({' | '.join(required_integers)}) >> 63: in_range({', '.join(required_integers)})")
    lines.append(f"return cls({', '.join(f'v{index}' for index in range(len(fields)))})")
    lines = ["try:", *(f"    {line}" for line in lines), "except (KeyError, ValueError): pass", "raise complaint(ext)"]

    def complaint(ext_fields: dict[str, str]) -> HeaderError:
        return HeaderError(_complaint(cls.__name__, fields, ext_fields))

    defaults = {f"default{i}": field[3] for i, field in enumerate(fields)}
    return _compiled("ext", lines, {"cls": cls, "in_range": _in_range, "complaint": complaint, **defaults})


def _compiled(parameter: str, lines: list[str], names: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the function with this body."""
    exec(f"def function({parameter}):\n" + "".join(f"    {line}\n" for line in lines), names)
    function: Callable[[Any], Any] = names["function"]
    return function


def _complaint(header: str, fields: list[tuple[str, str, type, Any]], ext_fields: dict[str, str]) -> str:
    for _, wire_name, kind, default in fields:
        value = ext_fields.get(wire_name)
        if value is None:
            if default is _MISSING:
                return f"the required field {wire_name} of {header} is missing"
        elif kind is int and not _is_int(value):
            return f"the field {wire_name} of {header} is not a 64-bit integer: {value[:40]!r}"
    return f"{header} cannot be decoded"


def _in_range(*values: int) -> None:
    if min(values) < -_INT64 or max(values) >= _INT64:
        raise ValueError


def _is_int(value: str) -> bool:
    try:
        return -_INT64 <= int(value) < _INT64
    except ValueError:
        return False
