"""Handles by which a producer recalls a timer message (``RecallMessageHandle``).

URL-safe base64 of five words separated by spaces: ``v1 topic broker time id``. The time is when the message is due (ms
since 1970), the id is its unique key.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from raptormq.errors import MessageError

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """A decoded handle. ``due`` is unchecked and may not be a number."""

    topic: str
    broker_name: str
    due: str
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the encoded handle."""
    return base64.urlsafe_b64encode(" ".join((_VERSION, *handle)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a handle.

    Raises:
        MessageError: the text is not a handle.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        version, *words = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode().split(" ")
        if version != _VERSION:
            raise MessageError("recall handle is invalid")
        return RecallHandle(*words)
    except (binascii.Error, UnicodeError, TypeError):
        raise MessageError("recall handle is invalid") from None
