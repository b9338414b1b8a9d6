"""Progress for people: one line for each step with the time since the start, and how long the step took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_START = time.monotonic()


def say(text: str) -> None:
    """One line, with the seconds since the start."""
    print(f"e2e [{time.monotonic() - _START:6.1f} s] {text}", flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Says when something begins and when it is done; an error passes through."""
    say(f"{text} ...")
    begun = time.monotonic()
    yield
    say(f"{text}: ok after {time.monotonic() - begun:.1f} s")
