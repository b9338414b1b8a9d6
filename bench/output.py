"""Output of benchmarks: progress to standard error, the table to standard output, both files to bench/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import machine

RESULTS = Path(__file__).resolve().parent / "results"

errors = Console(stderr=True)


def show(table: str, load_before: float) -> str:
    """Print a Markdown table with the description of the machine, and return the text.

    `load_before` is the machine's load average before the first run. It should be near 0.
    """
    text = f"{table}\n\n{machine.sentence()}; load average before the first run: {load_before:.1f}.\n"
    print(text)
    return text


def keep(name: str, text: str, values: Any, load_before: float, folder: Path = RESULTS) -> None:
    """Store the text of `show` as `name`.md and the values as `name`.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    document = {"machine": machine.describe(), "load_average_before": load_before, "values": values}
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    errors.print(f"kept in {folder / name}.md and .json")


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table. The first column is text, the others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
