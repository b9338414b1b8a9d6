"""Natural numbers that travel as text: in properties, in headers, in handles."""

from __future__ import annotations


def parse_natural(text: str | None, most_digits: int) -> int | None:
    """Return the number that ASCII digits stand for; None without a text, for anything else, and for more digits.

    The limit is for what peers write: Python refuses to read thousands of digits, with an error of its own.
    """
    if not text or len(text) > most_digits or not text.isascii() or not text.isdigit():
        return None
    return int(text)
