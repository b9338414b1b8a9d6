"""The comparison of the demo: it names a package that is missing, additional or different on either side."""

from __future__ import annotations

from demo.report import differences
from demo.source_lines import Figures


def test_equal_figures_have_no_difference() -> None:
    figures = {"a": Figures(1, 2, 3)}
    assert differences(figures, dict(figures)) == []


def test_every_kind_of_difference_is_named() -> None:
    expected = {"same": Figures(1, 1, 1), "lost": Figures(1, 1, 1), "wrong": Figures(2, 2, 2)}
    counted = {"same": Figures(1, 1, 1), "extra": Figures(1, 1, 1), "wrong": Figures(2, 2, 3)}
    assert differences(expected, counted) == ["extra", "lost", "wrong"]
