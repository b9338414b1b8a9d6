"""The machine under a figure, without its name: a figure means nothing without it."""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARE_TOUCHED = 0.9


def describe() -> dict[str, str | int]:
    """CPU model and count, memory, kernel and Python."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cpus": os.cpu_count() or 1,
        "memory_gib": round(_memory_bytes("MemTotal") / 1024**3),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def sentence() -> str:
    """The same as one line of prose."""
    about = describe()
    return (
        f"{about['cpus']} CPUs ({about['cpu']}), {about['memory_gib']} GiB, "
        f"Linux {about['kernel']}, Python {about['python']}"
    )


def load_average() -> float:
    """Processes that wanted a CPU in the last minute: on an idle machine near 0."""
    return os.getloadavg()[0]


def touch_memory() -> None:
    """Write into what is free once. The host of a virtual machine provides memory when it is first used, and the page
    cache filled then takes ten times as long: the first to write much would look slow.
    """
    _take(int(_memory_bytes("MemFree") * _SHARE_TOUCHED)).close()


@contextmanager
def memory_left(left_bytes: int) -> Iterator[None]:
    """Take all free memory but so much for a while. The page cache of what is left gets full, and its pages are used
    again and again, as on a machine that has run for days: none is used for the first time.
    """
    surplus = _memory_bytes("MemFree") - left_bytes
    if surplus <= 0:
        yield
        return
    taken = _take(surplus)
    try:
        yield
    finally:
        taken.close()


def _memory_bytes(name: str) -> int:
    return next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith(name)) * 1024


def _take(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
