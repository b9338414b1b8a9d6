"""Description of the machine for benchmark results, without its name."""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARE_TOUCHED = 0.9


def describe() -> dict[str, str | int]:
    """Return CPU model and count, memory, kernel and Python version."""
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
    """Return the description as one sentence."""
    about = describe()
    return (
        f"{about['cpus']} CPUs ({about['cpu']}), {about['memory_gib']} GiB, "
        f"Linux {about['kernel']}, Python {about['python']}"
    )


def load_average() -> float:
    """Return the load average of the last minute; near 0 on an idle machine."""
    return os.getloadavg()[0]


def touch_memory() -> None:
    """Write to all free memory once. The host of a virtual machine allocates memory at its first use, which makes
    filling the page cache ten times slower. Without this call the first run with many writes would be slower than the
    others."""
    _take(int(_memory_bytes("MemFree") * _SHARE_TOUCHED)).close()


@contextmanager
def memory_left(left_bytes: int) -> Iterator[None]:
    """Context that allocates all free memory except a given amount. The page cache then reuses pages, as on a
    machine that has run for days."""
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
