"""Signatures of requests, as Apache RocketMQ's ``AclClientRPCHook`` creates them and ``AclSigner`` verifies them.

The signed content is the values of all ext fields, ordered by name, followed by the body::

    AccessKey, [SecurityToken], and the header's own fields --> values joined --> UTF-8 | body
    Signature = base64(HMAC-SHA1(secret key, that))

The signature does not cover the request's code, the names of its fields, or its time: see :mod:`.full_signature`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from raptormq.protocol.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LAST_LATE_VERSION = 399
"""Ordinal of V4_9_3. Clients up to this version add ``_UNIQUE_KEY_QUERY`` after signing."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secrets of a signer. ``str()`` never shows the secrets."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.access_key} (secret not shown)"


CredentialSource = Callable[[], Credentials]


def sign(request: RemotingCommand, credentials: Credentials) -> None:
    """Sign ``request``; an existing signature is replaced."""
    fields = request.ext_fields
    set_signer(fields, credentials)
    fields[SIGNATURE] = signature(signed_content(fields, request.body), credentials.secret_key)


def set_signer(fields: dict[str, str], credentials: Credentials) -> None:
    """Add the fields that identify the signer."""
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        fields[SECURITY_TOKEN] = credentials.security_token


def is_signed_with(request: RemotingCommand, secret_key: str) -> bool:
    """Whether the signature of a received request was made with ``secret_key``. Runs in constant time for wrong
    signatures.
    """
    given = request.ext_fields.get(SIGNATURE)
    if given is None:
        return False
    fields: Mapping[str, str] = request.ext_fields
    if request.version <= _LAST_LATE_VERSION and _UNIQUE_KEY_QUERY in fields:
        fields = {name: value for name, value in fields.items() if name != _UNIQUE_KEY_QUERY}
    expected = signature(signed_content(fields, request.body), secret_key)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))


def signed_content(fields: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes to sign."""
    text = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE])
    return text.encode("utf-8", "replace") + body


def signature(content: bytes, secret_key: str) -> str:
    """Return base64(HMAC-SHA1)."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
