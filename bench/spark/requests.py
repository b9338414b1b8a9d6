"""Queries that a Spark session runs for the benchmark, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Read:
    """A batch query over a topic: number of rows, bytes of the bodies, and one more aggregate."""

    format: str
    options: dict[str, str]
    aggregate: str


@dataclass(frozen=True)
class Stream:
    """A streaming query with Trigger.AvailableNow and a new checkpoint; its rows are discarded."""

    format: str
    options: dict[str, str]
    configuration: dict[str, str] = field(default_factory=dict)
    """Configuration of the session for this query."""


@dataclass(frozen=True)
class Write:
    """A batch write of generated rows by two tasks."""

    format: str
    options: dict[str, str]
    rows: int
    columns: tuple[str, ...]
    """SQL expressions over the column `id`."""


Query = Read | Stream | Write


@dataclass(frozen=True)
class Result:
    """The result of one query."""

    seconds: float
    """Time in seconds from the construction of the query to its end."""
    rows: int
    batches_ms: tuple[float, ...] = field(default=(), kw_only=True)
    """Duration of each micro-batch of a stream in ms (`triggerExecution` of Spark's progress reports)."""
    worker_bytes: int
    """Largest resident memory of a Python process of this session since its start."""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds
