"""One figure that RaptorMQ promises, as measured here."""

from __future__ import annotations

from dataclasses import dataclass

from bench.output import markdown


@dataclass(frozen=True)
class Figure:
    """A measured value beside its promise."""

    what: str
    value: float
    unit: str
    promise: float
    at_least: bool = False
    """Whether the promise is a lower bound; otherwise it is an upper one."""

    @property
    def kept(self) -> bool:
        return self.value >= self.promise if self.at_least else self.value < self.promise


def table(figures: list[Figure]) -> str:
    """What was measured, what was promised, and whether that was kept."""
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
