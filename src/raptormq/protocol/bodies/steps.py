"""Bodies that are read, or worked off, in slices: a generator that may be left alone after every item.

A body may name tens of thousands of things. Who has nothing else to do reads it at once (:func:`at_once`); a server has
other requests to serve between slices, as `raptormq.broker.cooperative` does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Yields after every item and returns the result."""


def run_steps(steps: Steps[T]) -> T:
    """Return the result of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
