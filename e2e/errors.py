"""What fails a run: one class, whose text says what was expected and what came instead."""

from __future__ import annotations

from raptormq.errors import RaptorMQError


class Failed(RaptorMQError):
    """A step of the run did not do what it had to."""
