"""Handles by which a producer takes a timer message back (``RecallMessageHandle``).

URL-safe base64 of five words with a space between: ``v1 topic broker time id``. The time is when the message is due
(ms since 1970), the id its unique key.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from raptormq.errors import MessageError

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """A handle taken apart; ``due`` is as it came, and may not be a number."""

    topic: str
    broker_name: str
    due: str
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the text that travels."""
    return base64.urlsafe_b64encode(" ".join((_VERSION, *handle)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Take a handle apart.

    Raises:
        MessageError: it is none.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        version, *words = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode().split(" ")
        if version != _VERSION:
            raise MessageError("recall handle is invalid")
        return RecallHandle(*words)
    except (binascii.Error, UnicodeError, TypeError):
        raise MessageError("recall handle is invalid") from None
