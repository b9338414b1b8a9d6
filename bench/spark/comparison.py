"""Measured values with the values to compare them with, and their table."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bench.output import markdown


@dataclass(frozen=True)
class Series:
    """The values of all runs except the first, cold run."""

    name: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)


@dataclass(frozen=True)
class Comparison:
    """One row of the table."""

    what: str
    unit: str
    ours: Series
    other: Series | None = None
    """Values with which ``ours`` is compared; None for no comparison."""
    at_least_times: float | None = None
    """Minimum ratio of the medians of ``ours`` and ``other``."""
    at_least: float | None = None
    """Minimum median of ``ours``."""
    at_most: float | None = None
    """Maximum median of ``ours``."""

    @property
    def ratio(self) -> float | None:
        """Median of ``ours`` divided by the median of ``other``; None without ``other``."""
        return None if self.other is None else self.ours.median / self.other.median

    @property
    def reached(self) -> bool | None:
        """Whether the bound is reached; None without a bound."""
        if self.at_least_times is not None and self.ratio is not None:
            return self.ratio >= self.at_least_times
        if self.at_least is not None:
            return self.ours.median >= self.at_least
        return None if self.at_most is None else self.ours.median <= self.at_most

    @property
    def bound(self) -> str:
        """The bound as text; empty without one."""
        if self.at_least_times is not None:
            return f"at least {self.at_least_times:g} x"
        if self.at_least is not None:
            return f"at least {self.at_least:,g}"
        return "" if self.at_most is None else f"at most {self.at_most:,g}"


_REACHED = {True: "yes", False: "**no**", None: ""}


def table(comparisons: list[Comparison]) -> str:
    """Return a Markdown table of the medians."""
    rows = [
        [
            f"{each.what}, {each.unit}",
            f"{each.ours.median:,.0f}",
            "" if each.other is None else f"{each.other.name}: {each.other.median:,.0f}",
            "" if each.ratio is None else f"{each.ratio:.2f}",
            each.bound,
            _REACHED[each.reached],
        ]
        for each in comparisons
    ]
    return markdown(["figure", "measured", "compared with", "ratio", "to reach", "reached"], rows)
