"""Heartbeats that say again what their connection has said before.

Clients repeat their heartbeat every 30 s, byte for byte. As long as no client has come, gone or subscribed to something
else, such a one only shows that the client is still there, so it is neither decoded nor compared with what is known.
Neighbours: `clients` has the members, `handlers.clients` decodes what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from raptormq.broker.clients import C, ClientRegistry, Member

MAX_BODY_BYTES = 16 * 1024
"""Longer ones are not kept: every connection may send one."""

Said = tuple[bytes, int, int, str | None]
"""Body, language and version of a heartbeat, and who has signed it."""


@dataclass(frozen=True, slots=True)
class _Heartbeat(Generic[C]):
    said: Said
    members: Sequence[Member[C]]
    revision: int


class RepeatedHeartbeats(Generic[C]):
    """The last heartbeat of every connection, and what came of it."""

    def __init__(self, registry: ClientRegistry[C]) -> None:
        self._registry = registry
        self._last: dict[C, _Heartbeat[C]] = {}

    def renew(self, connection: C, said: Said, now_ms: int) -> bool:
        """Note that the members are still there when the heartbeat is a repeated one; False when it is to be read."""
        last = self._last.get(connection)
        if last is None or last.revision != self._registry.revision or last.said != said:
            return False
        for member in last.members:
            member.seen_ms = now_ms
        return True

    def remember(self, connection: C, said: Said, members: Sequence[Member[C]]) -> None:
        """Keep a heartbeat that has been read, with the records that it has made or renewed."""
        if len(said[0]) <= MAX_BODY_BYTES:
            self._last[connection] = _Heartbeat(said, members, self._registry.revision)
        else:
            self._last.pop(connection, None)

    def forget(self, connection: C) -> None:
        """Drop what a connection has said: it has ended."""
        self._last.pop(connection, None)

    def clear(self) -> None:
        """Let every connection's next heartbeat be read: what they make may have been deleted."""
        self._last.clear()
