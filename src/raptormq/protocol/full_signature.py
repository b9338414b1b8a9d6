"""A signature of a whole request and its time. It is specific to RaptorMQ and complements :mod:`.signing`.

RocketMQ's signature covers the values of the ext fields and the body, but not the code, the names of fields or the
time. Whoever observes a signed request can replay its values under another code or in other fields, any number of
times. The full signature prevents this. It is one more ext field, which the classic signature covers, so that Apache's
servers accept it without interpreting it::

    FullSignature = "1:<time>:<session>:<number>:<base64(HMAC-SHA256(secret key, signed text in UTF-8 | body))>"

    signed text:  "RaptorMQ 1 <code> <flag> <version> <time> <session> <number> <count of fields> "
                  "<length of name>:<name><length of value>:<value>" for each ext field except Signature and
                  FullSignature, ordered by name; lengths in characters

Time is in milliseconds since 1970. A session is a connection, identified by 16 random hexadecimal digits. The numbers
of its requests increase, so that a server detects a replay without remembering all requests
(:mod:`raptormq.security.full_signatures`).
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import SIGNATURE, Credentials, set_signer, sign

FULL_SIGNATURE = "FullSignature"
_FORM = re.compile(r"1:([0-9]{1,15}):([0-9a-f]{16}):([0-9]{1,15}):([A-Za-z0-9+/]{43}=)", re.ASCII)
_SIGNATURES = frozenset({SIGNATURE, FULL_SIGNATURE})


@dataclass(frozen=True, slots=True)
class SignatureStamp:
    """Time of a signature in ms since 1970, session of its connection, and number of the request in that session."""

    time_ms: int
    session: str
    number: int


@dataclass(frozen=True, slots=True)
class FullSignature:
    """A full signature, decoded from the ext field of a request."""

    moment: SignatureStamp
    digest: str

    def matches(self, request: RemotingCommand, secret_key: str) -> bool:
        """Whether the signature was made for exactly this request with ``secret_key``. Runs in constant time for wrong
        signatures.
        """
        return hmac.compare_digest(_digest(request, self.moment, secret_key), self.digest)


def sign_fully(request: RemotingCommand, credentials: Credentials, moment: SignatureStamp) -> None:
    """Add both signatures and their signer to ``request``, replacing existing ones."""
    fields = request.ext_fields
    set_signer(fields, credentials)
    digest = _digest(request, moment, credentials.secret_key)
    fields[FULL_SIGNATURE] = f"1:{moment.time_ms}:{moment.session}:{moment.number}:{digest}"
    sign(request, credentials)


def read_full_signature(text: str) -> FullSignature | None:
    """Decode the ext field; return None if it does not have the form in the module docstring."""
    found = _FORM.fullmatch(text)
    return FullSignature(SignatureStamp(int(found[1]), found[2], int(found[3])), found[4]) if found else None


def _digest(request: RemotingCommand, moment: SignatureStamp, secret_key: str) -> str:
    fields = request.ext_fields
    names = sorted([name for name in fields if name not in _SIGNATURES])
    texts = [f"{len(name)}:{name}{len(fields[name])}:{fields[name]}" for name in names]
    envelope = f"{int(request.code)} {int(request.flag)} {request.version}"
    head = f"RaptorMQ 1 {envelope} {moment.time_ms} {moment.session} {moment.number} {len(names)} "
    # "replace" would map different texts to the same bytes
    content = (head + "".join(texts)).encode("utf-8", "surrogatepass") + request.body
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha256")).decode()
