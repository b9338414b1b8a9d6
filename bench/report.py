"""Tables of a run: for the terminal, and as Markdown that README can hold."""

from __future__ import annotations

from rich.table import Table

from bench.client_load import Row

_COLUMNS = (
    ("msg/s", "messages_per_s", "{:,.0f}"),
    ("p50 ms", "p50_ms", "{:.2f}"),
    ("p99 ms", "p99_ms", "{:.2f}"),
    ("broker CPU s per million", "cpu_s_per_million", "{:.1f}"),
    ("resident MB", "resident_mb", "{:,.0f}"),
)
_MODES = {"sync": "sync, 32 threads", "async": "async, 1,024 in flight", "batch": "lists of 32, 8 threads"}


def _cells(row: Row) -> list[str]:
    cells = [f"{_MODES[row.mode]}, {row.placement}"]
    for _, figure, form in _COLUMNS:
        theirs, ours = row.rocketmq[figure], row.raptormq[figure]
        cells.append(f"{form.format(theirs)} / {form.format(ours)} = {row.ratio(figure):.2f}")
    return cells


def terminal_table(rows: list[Row]) -> Table:
    """Return the table for a terminal: Apache RocketMQ / RaptorMQ = ratio."""
    table = Table(title="Apache RocketMQ 5.3.3 / RaptorMQ = ratio (Java client, 1 KiB messages, medians)")
    table.add_column("load")
    for name, _, _ in _COLUMNS:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def markdown(rows: list[Row]) -> str:
    """Return the same table as Markdown."""
    lines = [
        "| load | " + " | ".join(name for name, _, _ in _COLUMNS) + " |",
        "|---|" + "---:|" * len(_COLUMNS),
    ]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
