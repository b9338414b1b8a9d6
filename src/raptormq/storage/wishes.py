"""What a reader of a queue wants; :meth:`raptormq.storage.store.MessageStore.get_messages` takes it."""

from __future__ import annotations

from typing import NamedTuple

from raptormq.storage.property_scan import PropertyFilter


class Wishes(NamedTuple):
    """Limits and filters of one read; the first message that fits always comes whole."""

    max_count: int
    max_bytes: int
    tags: frozenset[int] | None = None
    """Tag codes; None for all messages."""
    properties: PropertyFilter | None = None
    whole: bool = False
    """Whether the batches of a BatchCQ topic may come as they are stored; each counts as one, whatever it holds."""
    encrypted: bool = True
    """Whether those may that are encrypted."""
    copies: bool = True
    """Whether records may come as copies in memory; without, a read that needs any ends ``cold``."""
