"""Natural numbers in text: in properties, headers and handles."""

from __future__ import annotations


def parse_natural(text: str | None, most_digits: int) -> int | None:
    """Return the number that ASCII digits represent, or None for any other text and for more than ``most_digits``
    digits.

    The limit guards against input of peers: ``int()`` raises ValueError for thousands of digits.
    """
    if not text or len(text) > most_digits or not text.isascii() or not text.isdigit():
        return None
    return int(text)
