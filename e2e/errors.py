"""What fails a run: errors whose text says what was expected and what came instead."""

from __future__ import annotations

from raptormq.errors import RaptorMQError


class Failed(RaptorMQError):
    """A step of the run did not do what it had to."""


class Unanswered(Failed):
    """A command failed or took too long: what it was to ask is not known."""
