"""JSON in fastjson's dialect: numeric map keys without quotes, and objects as map keys.

Java peers send ``{0:"a"}`` and ``{{"topic":"t","queueId":0}:{"offset":1}}``. A body is parsed as standard JSON first.
Only if that fails, it is rewritten: bare keys are quoted, and an object in the place of a key becomes a string of its
text. The encoders write standard JSON, except for tables keyed by queue, which Java parses only in fastjson's form
(:func:`dump_object_keyed`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from raptormq.errors import BodyError

_BARE_KEY_END = frozenset(b" \t\r\n:")
_MAX_DEPTH = 64
MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a body for :func:`loads_request`: 30,000 subscriptions or 40,000 queues. Parsing them takes 30
ms."""
MAX_REQUEST_REWRITTEN_BYTES = 65_536
"""Maximum bytes of a body in fastjson's dialect for :func:`loads_request`. Parsing the dialect takes 10 us per byte."""


def loads(data: bytes) -> Any:
    """Parse ``data``.

    Raises:
        BodyError: neither JSON nor fastjson's dialect.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        pass
    try:
        return orjson.loads(_Rewriter(data).rewrite())
    except ValueError as error:
        raise BodyError(f"the body is not JSON: {error}") from None
    except IndexError:
        raise BodyError("the body is not JSON: it is truncated") from None


def loads_object(data: bytes) -> dict[str, Any]:
    """Parse ``data``, which must be an object.

    Raises:
        BodyError: not an object.
    """
    value = loads(data)
    if not isinstance(value, dict):
        raise BodyError("the body is not a JSON object")
    return value


def loads_request(data: bytes) -> dict[str, Any]:
    """Parse the body of a request, which must be an object. The limits bound the time, because parsing cannot be split
    into steps.

    Raises:
        BodyError: not an object, longer than :data:`MAX_REQUEST_BYTES`, or in fastjson's dialect and longer than
            :data:`MAX_REQUEST_REWRITTEN_BYTES`. Clients use the dialect only in responses.
    """
    if len(data) > MAX_REQUEST_BYTES:
        raise BodyError(f"the body has {len(data)} bytes of JSON, more than {MAX_REQUEST_BYTES}")
    if len(data) > MAX_REQUEST_REWRITTEN_BYTES:
        try:
            value = orjson.loads(data)
        except ValueError as error:
            raise BodyError(f"the body is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise BodyError("the body is not a JSON object")
        return value
    return loads_object(data)


def dumps(value: Any) -> bytes:
    """Encode standard JSON; integer keys become strings."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def dump_object_keyed(pairs: Iterable[tuple[Any, Any]]) -> bytes:
    """Encode ``{key object: value, …}`` in fastjson's form, which is not JSON but what Java parses for maps keyed by
    queue.
    """
    return b"{" + b",".join(dumps(key) + b":" + dumps(value) for key, value in pairs) + b"}"


class _Rewriter:
    """Quotes keys in one pass over the text. Strings and values are copied unchanged."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def rewrite(self) -> bytes:
        out = bytearray()
        self._value(out, 0)
        return bytes(out + self._data[self._position :])

    def _space(self) -> int:
        data = self._data
        while data[self._position] in b" \t\r\n":
            self._position += 1
        return data[self._position]

    def _value(self, out: bytearray, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        char = self._space()
        if char == ord("{"):
            self._container(out, depth, ord("}"), keyed=True)
        elif char == ord("["):
            self._container(out, depth, ord("]"), keyed=False)
        elif char == ord('"'):
            out += self._string()
        else:
            start = self._position
            while self._position < len(self._data) and self._data[self._position] not in b",]} \t\r\n":
                self._position += 1
            if start == self._position:
                raise ValueError("a value is missing")
            out += self._data[start : self._position]

    def _container(self, out: bytearray, depth: int, end: int, *, keyed: bool) -> None:
        out.append(self._data[self._position])
        self._position += 1
        while self._space() != end:
            if keyed:
                self._key(out, depth)
            self._value(out, depth + 1)
            if self._space() == ord(","):
                out += b","
                self._position += 1
        out.append(end)
        self._position += 1

    def _key(self, out: bytearray, depth: int) -> None:
        char = self._space()
        if char == ord('"'):
            out += self._string()
        elif char in b"{[":
            nested = bytearray()
            self._value(nested, depth + 1)
            out += orjson.dumps(nested.decode())
        else:
            start = self._position
            while self._data[self._position] not in _BARE_KEY_END:
                self._position += 1
            out += orjson.dumps(self._data[start : self._position].decode())
        if self._space() != ord(":"):
            raise ValueError("a key is not followed by a colon")
        out += b":"
        self._position += 1

    def _string(self) -> bytes:
        start = self._position
        self._position += 1
        while self._data[self._position] != ord('"'):
            self._position += 2 if self._data[self._position] == ord("\\") else 1
        self._position += 1
        return self._data[start : self._position]
