"""Errors that fail a run. Their messages have the expected and the actual result."""

from __future__ import annotations

from raptormq.errors import RaptorMQError


class Failed(RaptorMQError):
    """A step had a wrong result."""


class Unanswered(Failed):
    """A command failed or timed out, so its result is unknown."""
