"""Natural numbers in text: in properties, headers and handles."""

from __future__ import annotations


def parse_natural(text: str | None, most_digits: int) -> int | None:
    """Return the number that ASCII digits represent, or None for any other text and for more than ``most_digits``
    digits.

    The limit protects against input of peers: Python raises an error of its own for thousands of digits.
    """
    if not text or len(text) > most_digits or not text.isascii() or not text.isdigit():
        return None
    return int(text)
