"""The full signature: the fields it covers, its bytes, and that the classic signature covers it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.protocol.command import RemotingCommand, SerializeType, decode, encode
from raptormq.protocol.frame import FrameDecoder
from raptormq.protocol.full_signature import FULL_SIGNATURE, SignatureStamp, read_full_signature, sign_fully
from raptormq.protocol.signing import SIGNATURE, Credentials, is_signed_with

ALICE = Credentials("alice", "secret")
NOW = SignatureStamp(1_700_000_000_000, "00112233445566ff", 7)


def signed(moment: SignatureStamp = NOW) -> RemotingCommand:
    request = RemotingCommand(33, {"topic": "orders", "offset": "12"}, b"body")
    sign_fully(request, ALICE, moment)
    return request


def is_good(request: RemotingCommand, secret: str = "secret") -> bool:
    given_signature = read_full_signature(request.ext_fields[FULL_SIGNATURE])
    assert given_signature is not None
    return given_signature.matches(request, secret)


def test_the_signed_text_is_the_documented_one() -> None:
    text = (
        "RaptorMQ 1 33 0 479 1700000000000 00112233445566ff 7 3 "
        "9:AccessKey5:alice6:offset2:125:topic6:orders"
    )  # fmt: skip
    digest = hmac.new(b"secret", text.encode() + b"body", hashlib.sha256).digest()
    expected = f"1:1700000000000:00112233445566ff:7:{base64.b64encode(digest).decode()}"
    assert signed().ext_fields[FULL_SIGNATURE] == expected


def test_the_classic_signature_is_there_and_covers_this_one() -> None:
    """Compute the signature like RocketMQ's servers: the values of all ext fields except Signature, ordered by name."""
    request = signed()
    fields = request.ext_fields
    assert sorted(fields) == ["AccessKey", "FullSignature", SIGNATURE, "offset", "topic"]
    content = b"alice" + fields[FULL_SIGNATURE].encode() + b"12" + b"orders" + b"body"
    expected = base64.b64encode(hmac.new(b"secret", content, hashlib.sha1).digest()).decode()
    assert fields[SIGNATURE] == expected
    assert is_signed_with(request, "secret")


def other_code(request: RemotingCommand) -> None:
    request.code = 215


def oneway(request: RemotingCommand) -> None:
    request.flag |= 2


def other_version(request: RemotingCommand) -> None:
    request.version = 399


def other_body(request: RemotingCommand) -> None:
    request.body = b"Body"


def other_value(request: RemotingCommand) -> None:
    request.ext_fields["topic"] = "orderS"


def other_name(request: RemotingCommand) -> None:
    """The values and their order do not change."""
    request.ext_fields["topid"] = request.ext_fields.pop("topic")


def other_border(request: RemotingCommand) -> None:
    request.ext_fields |= {"offset": "1", "topic": "2orders"}


def another_field(request: RemotingCommand) -> None:
    request.ext_fields["z"] = ""


def other_user(request: RemotingCommand) -> None:
    request.ext_fields["AccessKey"] = "bob"


def later(request: RemotingCommand) -> None:
    text = request.ext_fields[FULL_SIGNATURE]
    request.ext_fields[FULL_SIGNATURE] = text.replace(str(NOW.time_ms), str(NOW.time_ms + 1))


def next_number(request: RemotingCommand) -> None:
    request.ext_fields[FULL_SIGNATURE] = request.ext_fields[FULL_SIGNATURE].replace("ff:7:", "ff:8:")


def other_session(request: RemotingCommand) -> None:
    request.ext_fields[FULL_SIGNATURE] = request.ext_fields[FULL_SIGNATURE].replace("ff:7:", "fe:7:")


@pytest.mark.parametrize(
    "change",
    [
        other_code,
        oneway,
        other_version,
        other_body,
        other_value,
        other_name,
        other_border,
        another_field,
        other_user,
        later,
        next_number,
        other_session,
    ],
)
def test_nothing_of_a_request_may_change(change: Callable[[RemotingCommand], None]) -> None:
    request = signed()
    assert is_good(request)
    change(request)
    assert not is_good(request)


def test_another_secret_is_wrong() -> None:
    assert not is_good(signed(), "Secret")


def test_what_the_classic_signature_does_not_see() -> None:
    """The classic signature permits this: the same values with another code, in other fields."""
    for change in (other_code, other_name, other_border, oneway):
        request = signed()
        change(request)
        assert is_signed_with(request, "secret"), change


def test_a_request_that_is_sent_again_is_signed_again() -> None:
    request = signed()
    sign_fully(request, ALICE, replace(NOW, number=8))
    assert is_good(request)
    assert is_signed_with(request, "secret")
    assert request.ext_fields[FULL_SIGNATURE].startswith("1:1700000000000:00112233445566ff:8:")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        signed().ext_fields[FULL_SIGNATURE].replace("1:", "2:", 1),
        signed().ext_fields[FULL_SIGNATURE] + "=",
        signed().ext_fields[FULL_SIGNATURE] + "\n",
        signed().ext_fields[FULL_SIGNATURE].replace("ff", "FF"),
        signed().ext_fields[FULL_SIGNATURE].replace(":7:", ":-7:"),
        signed().ext_fields[FULL_SIGNATURE].replace(":7:", ":\u0667:"),
        signed().ext_fields[FULL_SIGNATURE].replace(":7:", ":" + "9" * 16 + ":"),
    ],
)
def test_other_forms_are_none(text: str) -> None:
    assert read_full_signature(text) is None


TEXT = st.text(max_size=20)


@given(
    st.dictionaries(TEXT.filter(lambda name: len(name) > 0), TEXT, max_size=6),
    st.binary(max_size=50),
    st.sampled_from(SerializeType),
)
def test_it_survives_the_wire(fields: dict[str, str], body: bytes, header: SerializeType) -> None:
    request = RemotingCommand(310, dict(fields), body, serialize_type=header)
    sign_fully(request, ALICE, NOW)
    decoder = FrameDecoder()
    (frame,) = decoder.feed(encode(request))
    received = decode(frame)
    assert is_good(received)
    assert is_signed_with(received, "secret")
