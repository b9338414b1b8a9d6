"""JSON encoding of the header (serialise type 0), the default of Java clients and the only encoding of ali-ons.

Source: Apache RocketMQ ``RemotingSerializable``. Keys: ``code``, ``language`` (name), ``version``, ``opaque``,
``flag``, ``remark`` (absent if null), ``extFields``, ``serializeTypeCurrentRPC``. Unknown keys are ignored, and the
order is not significant.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import orjson

from raptormq.errors import CommandError, TextError
from raptormq.protocol.language import BY_CODE, BY_NAME, Language

Fields = tuple[int, int, int, int, int, str | None, dict[str, str]]
"""``(code, language, version, opaque, flag, remark, ext_fields)``, the same for both encodings."""

_INT32 = 1 << 31
_NAMES = "code", "version", "opaque", "flag", "language", "extFields"
_USUAL = itemgetter(*_NAMES)
"""Gets the fields of nearly all headers with one call."""
_USUAL_AND_DEFAULTS = _NAMES, (None, 0, 0, 0, None, None)
_LANGUAGE_NAMES = {code: language.name for code, language in BY_CODE.items()}


def decode(data: bytes) -> Fields:
    """Decode header bytes.

    Values of ``extFields`` that are JSON numbers or booleans (ali-ons sends them) become the strings that JavaScript
    would print. Null values are dropped.

    Raises:
        CommandError: not a JSON object, or a field of the wrong type.
        TextError: a key or value is not valid text, and nothing else is wrong.
    """
    try:
        fields: Any = orjson.loads(data)
    except ValueError as error:
        raise _not_json(data, error) from error
    if type(fields) is not dict:
        raise CommandError("header is not a JSON object")
    try:
        code, version, opaque, flag, language_name, ext_fields = _USUAL(fields)
    except KeyError:
        code, version, opaque, flag, language_name, ext_fields = map(fields.get, *_USUAL_AND_DEFAULTS)
    integers = type(code) is type(version) is type(opaque) is type(flag) is int
    if not integers or (code | version | opaque | flag) >> 31:  # a number is negative or too large
        _check_integers(code=code, version=version, opaque=opaque, flag=flag)
    remark: Any = fields.get("remark")
    if remark is not None and type(remark) is not str:
        raise CommandError("header field remark is not a string")
    if ext_fields is None:
        ext_fields = {}
    elif type(ext_fields) is not dict:
        raise CommandError("header field extFields is not an object")
    else:
        try:
            "".join(ext_fields.values())  # the fastest check that all values are strings, the usual case
        except TypeError:
            ext_fields = {key: _text(value) for key, value in ext_fields.items() if value is not None}
    language = BY_NAME.get(language_name, Language.OTHER) if type(language_name) is str else Language.OTHER
    return code, language, version, opaque, flag, remark, ext_fields


def _not_json(data: bytes, error: ValueError) -> CommandError:
    """Return the error for a header that is not JSON: a TextError if only its text is invalid, else a CommandError.

    Raises:
        CommandError: more than the text is invalid.
    """
    # All escapes of surrogates, paired or not, are replaced by escapes of other characters.
    legible = data.decode(errors="replace").encode().replace(rb"\ud", rb"\uf").replace(rb"\uD", rb"\uF")
    if legible == data:
        return CommandError(f"header is not JSON: {error}")
    code, _, _, opaque, flag, _, _ = decode(legible)
    return TextError(error, code, opaque, flag)


def _check_integers(**integers: Any) -> None:
    for name, value in integers.items():
        if type(value) is not int or not -_INT32 <= value < _INT32:
            raise CommandError(f"header field {name} is not a 32-bit integer: {value!r:.40}")


def encode(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str],
) -> bytes:
    """Encode header bytes. ``extFields`` is always present, because Java clients dereference it.

    Raises:
        CommandError: a text cannot be encoded as UTF-8.
    """
    fields: dict[str, Any] = {
        "code": code,
        "extFields": ext_fields,
        "flag": flag,
        "language": _LANGUAGE_NAMES.get(language, "OTHER"),
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    if remark is not None:
        fields["remark"] = remark
    try:
        return orjson.dumps(fields)
    except TypeError as error:
        raise CommandError(f"the header cannot be encoded: {error}") from None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    raise CommandError(f"extFields value is neither a string, a number nor a boolean: {value!r:.40}")
