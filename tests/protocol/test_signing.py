"""Signatures compared with those of the official Java client's algorithm."""

from __future__ import annotations

import base64
import hashlib
import hmac

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import SIGNATURE, Credentials, is_signed_with, sign

ALICE = Credentials("alice", "secret", "token")


def test_values_are_joined_in_the_order_of_their_names() -> None:
    request = RemotingCommand(310, {"b": "topic", "a": "group"}, b"body")
    sign(request, ALICE)
    expected = hmac.new(b"secret", b"alice" + b"token" + b"group" + b"topic" + b"body", hashlib.sha1).digest()
    assert request.ext_fields[SIGNATURE] == base64.b64encode(expected).decode()


def test_a_second_signature_replaces_the_first() -> None:
    request = RemotingCommand(310, {"a": "x"})
    sign(request, ALICE)
    first = request.ext_fields[SIGNATURE]
    sign(request, ALICE)
    assert request.ext_fields[SIGNATURE] == first
    assert is_signed_with(request, "secret")
    assert not is_signed_with(request, "other")


def test_old_clients_add_a_field_after_they_have_signed() -> None:
    request = RemotingCommand(12, {"topic": "t"}, version=399)
    sign(request, ALICE)
    request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed_with(request, "secret")
    request.version = 400
    assert not is_signed_with(request, "secret")


def test_a_secret_is_not_printed() -> None:
    assert "secret'" not in repr(ALICE)
    assert "token" not in str(ALICE)
