"""Progress output: one line per step with the time since the start, and the duration of the step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_START = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"e2e [{time.monotonic() - _START:6.1f} s] {text}", flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Context that prints the start and the end of a step. Exceptions are propagated."""
    say(f"{text} ...")
    begun = time.monotonic()
    yield
    say(f"{text}: ok after {time.monotonic() - begun:.1f} s")
