"""Output as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import orjson

from raptormq.logs import printable

Cell = str | int | float | None


def echo(text: str, *, err: bool = False) -> None:
    """Write one line. Control characters are escaped, because the text may contain data from a peer."""
    click.echo(printable(text), err=err)


def print_json(value: Any) -> None:
    """Write one indented JSON document."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a table. Numbers are right-aligned. Lines are wrapped only on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        is_number = all(isinstance(row[index], int | float | None) for row in cells)
        table.add_column(column, justify="right" if cells and is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*("-" if cell is None else printable(str(cell)) for cell in row))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(table)


def position(value: str | int) -> str:
    """Return earliest, latest or a time in ms since 1970 in the format of the options."""
    if isinstance(value, str):
        return value
    try:
        shown = datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError):  # after the year 9999
        return str(value)
    return shown.isoformat(timespec="milliseconds" if value % 1000 else "seconds").replace("+00:00", "Z")


def moment(timestamp_ms: int) -> str | None:
    """Return the table cell for a time in ms since 1970, or None (shown as ``-``) for 0 and less."""
    if timestamp_ms <= 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
