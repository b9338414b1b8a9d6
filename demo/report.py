"""Report of the demo: compares Spark's figures with those from the files."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from demo.source_lines import Figures

PACKAGES_SHOWN = 20


def differences(expected: Mapping[str, Figures], counted: Mapping[str, Figures]) -> list[str]:
    """Return the packages whose figures differ."""
    return sorted(package for package in {*expected, *counted} if expected.get(package) != counted.get(package))


def figures_table(expected: Mapping[str, Figures], counted: Mapping[str, Figures]) -> Table:
    """Return a table of the packages with the most lines, and of the totals."""
    table = Table(title="Source lines: what Spark counted, and what the files hold")
    table.add_column("package", no_wrap=True)
    for heading in ("lines\nSpark", "lines\nfiles", "bytes\nSpark", "bytes\nfiles"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("equal", justify="center")
    largest = sorted(expected, key=lambda package: (-expected[package].lines, package))[:PACKAGES_SHOWN]
    for package in largest:
        _add_row(table, package, expected[package], counted.get(package, Figures()))
    table.add_section()
    everything = sum(expected.values(), Figures())
    _add_row(table, f"all {len(expected)} packages", everything, sum(counted.values(), Figures()))
    return table


def _add_row(table: Table, name: str, expected: Figures, counted: Figures) -> None:
    table.add_row(
        name,
        f"{counted.lines:,}",
        f"{expected.lines:,}",
        f"{counted.size:,}",
        f"{expected.size:,}",
        "[green]yes[/]" if counted == expected else "[red]NO[/]",
    )
