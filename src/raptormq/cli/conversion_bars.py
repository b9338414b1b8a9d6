"""Progress bars of a conversion, one per broker. They are shown if standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from raptormq.client import QueueConversionState
from raptormq.logs import printable


@contextmanager
def bars() -> Iterator[Callable[[Mapping[str, QueueConversionState]], None]]:
    """Show a bar per broker during the block. The yielded function updates the bars. Without a terminal it has no
    effect.
    """
    if not sys.stderr.isatty():
        yield lambda states: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[phase]:>9}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} messages"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as bar:
        tasks = {}

        def show(states: Mapping[str, QueueConversionState]) -> None:
            for name, state in states.items():
                if name not in tasks:
                    tasks[name] = bar.add_task(printable(name), total=state.total, phase=state.phase)
                bar.update(tasks[name], completed=state.done, total=state.total, phase=state.phase)

        yield show
