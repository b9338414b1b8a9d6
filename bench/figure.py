"""A documented figure of RaptorMQ with a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from bench.output import markdown


@dataclass(frozen=True)
class Figure:
    """A measured value and its documented bound."""

    what: str
    value: float
    unit: str
    promise: float
    at_least: bool = False
    """True for a lower bound, False for an upper bound."""

    @property
    def kept(self) -> bool:
        return self.value >= self.promise if self.at_least else self.value < self.promise


def table(figures: list[Figure]) -> str:
    """Return a table with the measured value, the bound, and whether the bound was met."""
    rows = [
        [
            figure.what,
            f"{figure.value:,.2f} {figure.unit}",
            f"{'at least' if figure.at_least else 'under'} {figure.promise:,g} {figure.unit}",
            "yes" if figure.kept else "**no**",
        ]
        for figure in figures
    ]
    return markdown(["figure", "measured", "promised", "kept"], rows)
