"""A source of keys for tests of encryption."""

from __future__ import annotations


class OneKey:
    """The same key for ever."""

    def current(self) -> tuple[str, bytes]:
        return "k1", bytes(32)

    def key(self, key_id: str) -> bytes:
        assert key_id == "k1"
        return bytes(32)
