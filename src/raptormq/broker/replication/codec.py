"""Messages of the Raft library as one-way requests of the remoting protocol.

Members connect to each other on separate ports (``dLegerPeers``). Every message is one frame of
:mod:`raptormq.protocol.frame` with the code ``REPLICATE`` (31010), the flag ONEWAY and the header field ``group``,
which is ``dLegerGroup``. Apache RocketMQ does not use the code 31010. DLedger's own codes are above 50,000 and do not
fit into the binary header. The body::

    0          4             4+H                      4+H+D
    +----------+-------------+------------------------+
    | H u32 be | head, JSON  | bytes of the log       |
    +----------+-------------+------------------------+

    head   [kind, {field: value, ...}]       the fields of the dataclass raptormq.raft.<kind>
           position       [offset, entries]
           entry          [term, offset, null | [[id, incarnation, suffrage, address], ...]]
           promise        [boot, term, last term, position]

Only an ``Append`` carries bytes of the log. Their number is the distance between its two positions.

The head of a message has exactly the fields that it had in version 0.2.0, whose members refuse any other head. A field
that was added since (:data:`raptormq.raft.OPTIONAL`) is a header field of the frame, with its value as JSON. Members
that do not know a header field ignore it, and a field that is missing is None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import orjson

from raptormq.errors import BodyError
from raptormq.raft import (
    OPTIONAL,
    Append,
    AppendResponse,
    Configuration,
    Entry,
    Hello,
    HelloResponse,
    Install,
    Member,
    MemberPromise,
    Message,
    Position,
    Promise,
    ReadIndexRequest,
    ReadIndexResponse,
    Suffrage,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        Append,
        AppendResponse,
        Hello,
        HelloResponse,
        Install,
        ReadIndexRequest,
        ReadIndexResponse,
        TimeoutNow,
        VoteRequest,
        VoteResponse,
    )
}
_LENGTH = struct.Struct(">I")
_MAX_INTEGER = 1 << 63


def encode_head(message: Message) -> bytes:
    """Return the body of a message without the bytes of the log."""
    kind = type(message)
    values = {name: _plain(getattr(message, name)) for name in _FIELDS[kind]}
    head = orjson.dumps([kind.__name__, values])
    return _LENGTH.pack(len(head)) + head


def header_of(message: Message) -> dict[str, str]:
    """Return the header fields of a message: its optional fields that are not None."""
    values = {name: getattr(message, name) for name in _OPTIONAL_FIELDS[type(message)]}
    return {name: orjson.dumps(_plain(value)).decode() for name, value in values.items() if value is not None}


def decode(body: bytes, header: Mapping[str, str]) -> Message:
    """Decode a body with the header fields of its frame. The bytes of the log are a view of ``body``.

    Raises:
        BodyError: ``body`` is not a message between members.
    """
    try:
        (size,) = _LENGTH.unpack_from(body)
        kind_name, values = orjson.loads(body[_LENGTH.size : _LENGTH.size + size])
        kind = _KINDS[kind_name]
        read = _FIELDS[kind]
        if values.keys() != read.keys():
            raise BodyError(f"a {kind_name} message has unexpected fields: {', '.join(values)}")
        fields_read = {name: read[name](value) for name, value in values.items()}
        for name, reader in _OPTIONAL_FIELDS[kind].items():
            if name in header:
                fields_read[name] = reader(orjson.loads(header[name]))
        message = kind(**fields_read)
    except (struct.error, LookupError, AttributeError, TypeError, ValueError) as error:
        raise BodyError(f"not a message between members: {type(error).__name__}: {error}") from error
    if fault := message.fault():
        raise BodyError(f"a {kind_name} message is inconsistent: {fault}")
    data = memoryview(body)[_LENGTH.size + size :]
    if isinstance(message, Append):
        if len(data) != message.end.offset - message.previous.offset:
            raise BodyError(f"an Append message has {len(data)} bytes for {message.previous}..{message.end}")
        message.data = data
    elif data:
        raise BodyError(f"a {kind_name} message is followed by {len(data)} unexpected bytes")
    return message


def _plain(value: Any) -> Any:
    if isinstance(value, Entry):
        return [value.term, value.offset, _plain(value.configuration)]
    if isinstance(value, Configuration):
        return [list(member) for member in value.members]
    if isinstance(value, tuple):  # also positions: orjson does not encode named tuples
        return [_plain(each) for each in value]
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_INTEGER:
        raise ValueError(f"{value!r:.40} is not a non-negative integer of at most 63 bits")
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r:.40} is not a boolean")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r:.40} is not a string")
    return value


def _position(value: Any) -> Position:
    offset, entries = value
    return Position(_integer(offset), _integer(entries))


def _promise(value: Any) -> Promise:
    boot, term, last_term, end = value
    return Promise(_integer(boot), _integer(term), _integer(last_term), _position(end))


def promises_from(value: Any) -> tuple[MemberPromise, ...]:
    """Decode promises that :func:`to_json` has encoded.

    Raises:
        ValueError, TypeError: ``value`` is not a list of encoded promises.
    """
    return tuple(
        MemberPromise(_text(name), _integer(incarnation), _promise(promise)) for name, incarnation, promise in value
    )


def configuration_from(value: Any) -> Configuration | None:
    """Decode a configuration that :func:`to_json` has encoded.

    Raises:
        ValueError, TypeError: ``value`` is not an encoded configuration.
    """
    if value is None:
        return None
    return Configuration.of(
        Member(_text(name), _integer(incarnation), Suffrage(suffrage), _text(address))
        for name, incarnation, suffrage, address in value
    )


def entries_from(value: Any) -> tuple[Entry, ...]:
    """Decode entries that :func:`to_json` has encoded.

    Raises:
        ValueError, TypeError: ``value`` is not a list of encoded entries.
    """
    return tuple(
        Entry(_integer(term), _integer(offset), configuration_from(members)) for term, offset, members in value
    )


def to_json(values: tuple[Entry, ...] | tuple[MemberPromise, ...]) -> list[Any]:
    """Encode entries or promises as lists and numbers for JSON."""
    return [_plain(each) for each in values]


_READERS: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    int | None: _integer,
    bool: _boolean,
    str: _text,
    Position: _position,
    Promise: _promise,
    tuple[MemberPromise, ...]: promises_from,
    tuple[Entry, ...]: entries_from,
    Configuration | None: configuration_from,
}


def _readers_of(kind: type[Message], *, optional: bool) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    chosen = [field.name for field in fields(kind) if (field.metadata == OPTIONAL) is optional]
    return {name: _READERS[hints[name]] for name in chosen if name != "data"}


_FIELDS = {kind: _readers_of(kind, optional=False) for kind in _KINDS.values()}
_OPTIONAL_FIELDS = {kind: _readers_of(kind, optional=True) for kind in _KINDS.values()}
