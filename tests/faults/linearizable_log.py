"""Check whether clients saw one queue that only grows: linearizability of appends and reads (Herlihy and Wing, 1990).

Each operation takes effect at one time between its invocation and its response. For a log that only grows, these times
are easy to find. Offset ``p`` is written at time ``w(p)``, and ``w(0) <= w(1) <= ...``::

    append, acknowledged at p       invoked <= w(p) <= returned
    append, not acknowledged        invoked <= w(p) where it was seen, or it never took effect
    pull that returned up to p      w(p) <= returned
    pull at p that returned nothing invoked <= w(p)
    end of the queue is p           w(p - 1) <= returned and invoked <= w(p)

So each offset has an earliest and a latest time. A history is linearizable if and only if no offset has an earliest
time, its own or that of an earlier offset, after its latest time. The check takes one pass over all offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Append:
    """A message was sent. Bodies are unique. Without an offset it is unknown whether the message was stored."""

    body: int
    invoked: float
    returned: float = math.inf
    offset: int | None = None


@dataclass(frozen=True)
class Pull:
    """Messages from an offset on. An empty result means that the queue ends at or before this offset."""

    offset: int
    bodies: tuple[int, ...]
    invoked: float
    returned: float


@dataclass(frozen=True)
class End:
    """The response to a request for the maximum offset, which is the offset of the next message."""

    offset: int
    invoked: float
    returned: float


Operation = Append | Pull | End


def violations(history: Iterable[Operation]) -> list[str]:
    """Return the contradictions to one queue that only grows; empty without one. All times are of the same clock."""
    bounds = _Bounds()
    for operation in history:
        bounds.add(operation)
    return bounds.contents() or bounds.times()


class _Bounds:
    """Evidence of all operations for each offset: its body, and the earliest and the latest time of its append."""

    def __init__(self) -> None:
        self._appends: dict[int, Append] = {}
        self._bodies: dict[int, int] = {}
        self._earliest: dict[int, Operation] = {}
        self._latest: dict[int, Operation] = {}
        self._differing: list[str] = []

    def add(self, operation: Operation) -> None:
        match operation:
            case Append(body=body, offset=offset):
                self._appends[body] = operation
                if offset is not None:
                    self._holds(offset, body, operation)
                    self._by(offset, operation)
            case Pull(offset=first, bodies=bodies):
                for offset, body in enumerate(bodies, first):
                    self._holds(offset, body, operation)
                if bodies:
                    self._by(first + len(bodies) - 1, operation)
                else:
                    self._not_before(first, operation)
            case End(offset=end):
                self._not_before(end, operation)
                if end:
                    self._by(end - 1, operation)

    def contents(self) -> list[str]:
        """Return the violations that do not depend on times: two bodies at one offset, one body at two offsets, a body
        that was not sent.
        """
        found = list(self._differing)
        places: dict[int, int] = {}
        for offset, body in self._bodies.items():
            if places.setdefault(body, offset) != offset:
                found.append(f"{body} is at offsets {places[body]} and {offset}")
            if body not in self._appends:
                found.append(f"{body} at offset {offset} was never sent")
        return found

    def times(self) -> list[str]:
        """Return the operations that are too late, each with a contradicting one."""
        end = max((*self._bodies, *self._latest), default=-1) + 1
        seen = set(self._bodies.values())
        unseen = sorted(
            (each for body, each in self._appends.items() if body not in seen), key=lambda each: each.invoked
        )
        unseen.reverse()
        found: dict[Operation, str] = {}
        last: Operation | None = None
        for offset in range(end):
            if offset in self._bodies:
                append: Operation = self._appends[self._bodies[offset]]
            elif unseen:  # no read returned this offset; the oldest append is the least restrictive
                append = unseen.pop()
            else:
                return [*found.values(), f"nothing was sent that can be at offset {offset}"]
            for each in (append, self._earliest.get(offset)):
                if each is not None and (last is None or each.invoked > last.invoked):
                    last = each
            latest = self._latest.get(offset)
            if last is not None and latest is not None and last.invoked > latest.returned:
                found.setdefault(last, f"{last} began after {latest}, which has offset {offset}")
        return list(found.values())

    def _holds(self, offset: int, body: int, operation: Operation) -> None:
        known = self._bodies.setdefault(offset, body)
        if known != body:
            self._differing.append(f"offset {offset} holds {known}, and {body} by {operation}")

    def _by(self, offset: int, operation: Operation) -> None:
        known = self._latest.get(offset)
        if known is None or operation.returned < known.returned:
            self._latest[offset] = operation

    def _not_before(self, offset: int, operation: Operation) -> None:
        known = self._earliest.get(offset)
        if known is None or operation.invoked > known.invoked:
            self._earliest[offset] = operation
