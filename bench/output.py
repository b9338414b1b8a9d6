"""Where a benchmark writes: progress to standard error, the table to standard output, both kept in bench/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import machine

RESULTS = Path(__file__).resolve().parent / "results"

errors = Console(stderr=True)


def save(name: str, table: str, values: Any) -> None:
    """Print a Markdown table and keep it as `name`.md, the values behind it as `name`.json."""
    RESULTS.mkdir(exist_ok=True)
    text = f"{table}\n\n{machine.sentence()}.\n"
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    document = {"machine": machine.describe(), "values": values}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(text)
    errors.print(f"kept in {RESULTS / name}.md and .json")


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table; the first column is text, the others are figures."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
