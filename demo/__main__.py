"""Command `python -m demo [FOLDER]`: runs the stages and prints tables and rates. The exit code is 1 if a count
differs.

FOLDER is the library to send; the default is Python's standard library.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.broker_process import BrokerFailed, running_broker
from demo.counting import count_with_spark, spark_session
from demo.report import differences, figures_table
from demo.sending import send_lines
from demo.source_lines import Figures, SourceFile, count, library_files, standard_library
from raptormq.errors import RaptorMQError


def main(library: Path) -> int:
    """Run the demo with the Python files below `library`. Return the exit code."""
    console = Console()
    started = time.monotonic()
    files = library_files(library)
    expected = count(files)
    total = sum(figures.lines for figures in expected.values())
    console.print(f"{total:,} lines in {len(files):,} files of {library}", highlight=False, soft_wrap=True)
    counted: dict[str, Figures] = {}
    failed = False
    try:
        counted = _through_the_broker(console, files, total)
    except* (BrokerFailed, RaptorMQError) as failures:  # several senders may fail together
        failed = True
        console.print(f"[red]demo failed:[/] {failures.exceptions[0]}", highlight=False)
    if failed:
        return 1
    console.print(figures_table(expected, counted))
    wrong = differences(expected, counted)
    if wrong:
        console.print(f"[red]NOT equal[/] in {len(wrong)} packages: {', '.join(wrong)}")
        return 1
    console.print(
        f"[green]Equal[/]: lines, bytes and checksums of all {len(expected)} packages, {total:,} lines.\n"
        f"The whole demo took {time.monotonic() - started:.0f} s."
    )
    return 0


def _through_the_broker(console: Console, files: list[SourceFile], total: int) -> dict[str, Figures]:
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="raptormq-demo-") as name, running_broker(Path(name)) as name_server:
        folder = Path(name)
        with Progress(*columns, console=console) as progress:
            sending = progress.add_task("sending in lists", total=total)
            start = time.monotonic()
            uvloop.run(send_lines(name_server, files, lambda sent: progress.advance(sending, sent)))
            sent_s = time.monotonic() - start
            counting = progress.add_task("counting with Spark", total=total)
            start = time.monotonic()
            with spark_session(folder) as session:
                session_s = time.monotonic() - start
                counted = count_with_spark(
                    session, name_server, folder, lambda rows: progress.update(counting, completed=rows)
                )
                counted_s = time.monotonic() - start - session_s
    console.print(
        f"sent    {total / sent_s:>10,.0f} messages/s ({sent_s:.1f} s)\n"
        f"counted {total / counted_s:>10,.0f} messages/s ({counted_s:.1f} s, after {session_s:.1f} s to start Spark)",
        highlight=False,
    )
    return counted


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else standard_library()))
