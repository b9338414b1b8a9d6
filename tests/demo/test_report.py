"""The demo's verdict: a package that is missing, added or different on either side is named."""

from __future__ import annotations

from rich.console import Console

from demo.report import PACKAGES_SHOWN, differences, figures_table
from demo.source_lines import Figures


def rendered(expected: dict[str, Figures], counted: dict[str, Figures]) -> str:
    console = Console(width=120, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(figures_table(expected, counted))
    return capture.get()


def test_equal_figures_have_no_difference() -> None:
    figures = {"a": Figures(1, 2, 3)}
    assert differences(figures, dict(figures)) == []


def test_every_kind_of_difference_is_named() -> None:
    expected = {"same": Figures(1, 1, 1), "lost": Figures(1, 1, 1), "wrong": Figures(2, 2, 2)}
    counted = {"same": Figures(1, 1, 1), "extra": Figures(1, 1, 1), "wrong": Figures(2, 2, 3)}
    assert differences(expected, counted) == ["extra", "lost", "wrong"]


def test_the_table_shows_the_largest_packages_and_the_sum() -> None:
    expected = {f"package{number:02}": Figures(lines=1000 + number, size=7) for number in range(PACKAGES_SHOWN + 5)}
    text = rendered(expected, expected)
    assert "package24" in text
    assert "package05" in text
    assert "package04" not in text
    assert f"{sum(figures.lines for figures in expected.values()):,}" in text
    assert "NO" not in text


def test_a_row_that_differs_says_so() -> None:
    text = rendered({"a": Figures(10, 20, 30)}, {"a": Figures(10, 20, 31)})
    assert text.count("NO") == 2
