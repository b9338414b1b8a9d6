"""A signature of everything that a request says, and of when: ours, beside the one of :mod:`.signing`.

RocketMQ's signature covers the values of the ext fields and the body. It covers no code, no names of fields, no time:
who sees a signed request can send its values again under another code, in other fields, and as often as he likes. This
one closes that. It is one more ext field, which the classic signature covers like any other, so that Apache's servers
take it without looking at it::

    FullSignature = "1:<time>:<session>:<number>:<base64(HMAC-SHA256(secret key, signed text in UTF-8 | body))>"

    signed text:  "RaptorMQ 1 <code> <flag> <version> <time> <session> <number> <count of fields> "
                  "<length of name>:<name><length of value>:<value>" for each ext field but Signature and
                  FullSignature, ordered by name; lengths in characters

Time is in milliseconds since 1970. A session is a connection: its requests have ever larger numbers, so that a server
notices one that comes again without remembering all (:mod:`raptormq.security.full_signatures`). Its name is 16
hexadecimal digits of a random number.
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
    """When a request was signed: ``time_ms`` since 1970, and as which of a session."""

    time_ms: int
    session: str
    number: int


@dataclass(frozen=True, slots=True)
class FullSignature:
    """What a request carries."""

    moment: SignatureStamp
    digest: str

    def matches(self, request: RemotingCommand, secret_key: str) -> bool:
        """True when it was made for exactly this request with ``secret_key``; takes the same time for any wrong one."""
        return hmac.compare_digest(_digest(request, self.moment, secret_key), self.digest)


def sign_fully(request: RemotingCommand, credentials: Credentials, moment: SignatureStamp) -> None:
    """Add both signatures and who made them; those that the request has already are replaced."""
    fields = request.ext_fields
    set_signer(fields, credentials)
    digest = _digest(request, moment, credentials.secret_key)
    fields[FULL_SIGNATURE] = f"1:{moment.time_ms}:{moment.session}:{moment.number}:{digest}"
    sign(request, credentials)


def read_full_signature(text: str) -> FullSignature | None:
    """Return what the field says, None when it is not of the form above."""
    found = _FORM.fullmatch(text)
    return FullSignature(SignatureStamp(int(found[1]), found[2], int(found[3])), found[4]) if found else None


def _digest(request: RemotingCommand, moment: SignatureStamp, secret_key: str) -> str:
    fields = request.ext_fields
    names = sorted([name for name in fields if name not in _SIGNATURES])
    texts = [f"{len(name)}:{name}{len(fields[name])}:{fields[name]}" for name in names]
    envelope = f"{int(request.code)} {int(request.flag)} {request.version}"
    head = f"RaptorMQ 1 {envelope} {moment.time_ms} {moment.session} {moment.number} {len(names)} "
    # "replace" would make different texts the same
    content = (head + "".join(texts)).encode("utf-8", "surrogatepass") + request.body
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha256")).decode()
