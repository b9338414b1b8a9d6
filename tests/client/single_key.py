"""A key source for tests of encryption."""

from __future__ import annotations


class OneKey:
    """A key source that always returns the same key."""

    def current(self) -> tuple[str, bytes]:
        return "k1", bytes(32)

    def key(self, key_id: str) -> bytes:
        assert key_id == "k1"
        return bytes(32)
