"""Progress bar, which is shown if standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int], None]
"""Function that is called with the number of messages and bytes since the last call."""


@contextmanager
def progress(title: str, total_bytes: int | None) -> Iterator[Advance]:
    """Show a progress bar during the block, if standard error is a terminal.

    ``total_bytes`` is the size of the input, or None if it is unknown. The bar then shows only counts.
    """
    if not sys.stderr.isatty():
        yield lambda messages, size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[messages]:,} messages"),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task(title, total=total_bytes, messages=0)
        done = 0

        def advance(messages: int, size: int) -> None:
            nonlocal done
            done += messages
            bar.update(task, advance=size, messages=done)

        yield advance
