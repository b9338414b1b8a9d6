"""RemotingCommand: the envelope of every request and response.

Source: Apache RocketMQ ``RemotingCommand``. The header of a frame has two encodings, :mod:`.json_header` and
:mod:`.binary_header`. A response uses the encoding of its request.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from raptormq.errors import CommandError, TextError
from raptormq.protocol import binary_header, json_header, schema
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.frame import Frame, join_frame
from raptormq.protocol.language import Language

PROTOCOL_VERSION = 479
"""Ordinal of V5_3_3 in RocketMQ's list of versions. Clients derive features from it."""


class SerializeType(IntEnum):
    """Encoding of the header, the first byte after the length prefix."""

    JSON = 0
    ROCKETMQ = 1


class CommandFlag(IntFlag):
    """Bits of ``flag``. IntFlag operations take a microsecond, so hot code uses the integers."""

    RESPONSE = 1
    ONEWAY = 2


_PROOFS = frozenset({"SecurityToken", "Signature"})
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)


@dataclass(slots=True, repr=False)
class RemotingCommand:
    """One request or response.

    ``ext_fields`` are the fields of the header, always strings. ``body`` is not interpreted here. ``opaque`` pairs a
    response with its request; the sending connection chooses it.
    """

    code: int
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: int = Language.PYTHON
    version: int = PROTOCOL_VERSION
    serialize_type: int = SerializeType.JSON

    def __repr__(self) -> str:
        """Show everything except secrets and the body, of which the length is shown. Logs, traces and debuggers must
        not reveal a signature or token that others could use.
        """
        fields = {name: "…" if name in _PROOFS else value for name, value in self.ext_fields.items()}
        return (
            f"RemotingCommand(code={int(self.code)}, ext_fields={fields}, body=<{len(self.body)} bytes>, "
            f"opaque={self.opaque}, flag={int(self.flag)}, remark={self.remark!r}, language={int(self.language)}, "
            f"version={self.version}, serialize_type={int(self.serialize_type)})"
        )

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether this is a request that must not be answered."""
        return bool(self.flag & _ONEWAY)


def request(
    code: int, header: schema.Header | None = None, body: bytes = b"", *, oneway: bool = False
) -> RemotingCommand:
    """Build a request. The connection that sends it sets ``opaque``."""
    ext_fields = schema.encode_header(header) if header is not None else {}
    return RemotingCommand(code, ext_fields, body, flag=CommandFlag.ONEWAY if oneway else 0)


def response_to(
    request: RemotingCommand,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    header: schema.Header | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Build the response to ``request``, with the same opaque and the same encoding of the header."""
    return RemotingCommand(
        code,
        schema.encode_header(header) if header is not None else {},
        body,
        request.opaque,
        _RESPONSE,
        remark,
        serialize_type=request.serialize_type,
    )


def undecodable_text_response(error: TextError, serialize_type: int) -> RemotingCommand:
    """Build the response to a request with text that could not be decoded."""
    asked = RemotingCommand(error.code, opaque=error.opaque, serialize_type=serialize_type)
    return response_to(asked, ResponseCode.SYSTEM_ERROR, str(error))


def decode(frame: Frame) -> RemotingCommand:
    """Decode a frame of :class:`~raptormq.protocol.frame.FrameDecoder`.

    Raises:
        CommandError: the header is not valid in its encoding.
        TextError: the header is valid except for text that is not UTF-8.
    """
    serialize_type, header, body = frame
    if serialize_type == 0:
        fields = json_header.decode(header)
    elif serialize_type == 1:
        fields = binary_header.decode(header)
    else:
        raise CommandError(f"unknown header encoding {serialize_type}")
    code, language, version, opaque, flag, remark, ext_fields = fields
    return RemotingCommand(code, ext_fields, body, opaque, flag, remark, language, version, serialize_type)


def encode_head(command: RemotingCommand, body_length: int) -> bytes:
    """Encode everything up to the body. The caller sends the body after it, as buffers of ``body_length`` bytes in
    total.

    Raises:
        CommandError: the header cannot be encoded, or is too long.
    """
    # Codes above 32,767 (POP) do not fit the binary header; peers accept JSON at any time.
    is_binary = command.serialize_type == SerializeType.ROCKETMQ and 0 <= command.code <= binary_header.MAX_CODE
    header = (binary_header if is_binary else json_header).encode(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext_fields,
    )
    try:
        return join_frame(SerializeType.ROCKETMQ if is_binary else SerializeType.JSON, header, body_length)
    except (OverflowError, struct.error):
        raise CommandError(f"{len(header)} bytes of header and {body_length} of body do not fit a frame") from None


def encode(command: RemotingCommand) -> bytes:
    """Encode a whole frame, length prefix and body included."""
    return encode_head(command, len(command.body)) + command.body
