"""Decoding in steps: a generator that yields after every item of a body.

A body may have tens of thousands of items. :func:`run_steps` decodes it without interruption. A server serves other
requests between steps, as `raptormq.broker.cooperative` does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A generator that yields after every item of a body and returns the decoded body."""


def run_steps(steps: Steps[T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
