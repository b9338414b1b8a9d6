"""Unique names for data on a server with a longer lifetime than a test, so that tests do not share it."""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count(1)


def unique(stem: str) -> str:
    """Return a name that begins with `stem` and that no other call returns, in any process of this run.

    A fixed name fails rarely: with work stealing or a random order, pytest sets up a fixture several times, and its
    messages are then stored twice.
    """
    return f"{stem}-{next(_numbers)}-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
