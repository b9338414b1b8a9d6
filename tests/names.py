"""Names for what a test writes to a server that outlives it, so that no test finds what another one has left there."""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count(1)


def unique(stem: str) -> str:
    """Return a name that begins with `stem` and that no other call returns, in no process of this run.

    A fixed name is a fault that seldom shows: pytest sets a fixture up again when work stealing or a random order takes
    its tests apart, and then its messages are stored twice.
    """
    return f"{stem}-{next(_numbers)}-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
