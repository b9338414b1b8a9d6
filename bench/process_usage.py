"""CPU time and resident memory of processes, and stolen CPU time, from /proc (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STEAL = 7
"""Index of steal among the times of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq,
steal, ..."""


@dataclass(frozen=True)
class Memory:
    """Resident memory in bytes: the total, and anonymous memory (heap, stacks), which is not shared."""

    resident: int
    anonymous: int


def cpu_seconds(pid: int, *, of_children: bool = False) -> float:
    """Return the CPU seconds of all threads of a process since its start, in user and kernel mode (resolution 10
    ms); or those of its terminated children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[13:15] if of_children else fields[11:13]
    return (int(user) + int(system)) / _TICKS_PER_SECOND


def stolen_seconds() -> float:
    """Return the stolen CPU seconds of all CPUs since the start of the virtual machine."""
    user_to_guest = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    return int(user_to_guest[_STEAL]) / _TICKS_PER_SECOND


def memory(pid: int) -> Memory:
    """Return the current resident memory. `resident` includes pages of mapped files."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "RssAnon"}:
            sizes[name] = int(value.split()[0]) * 1024
    return Memory(sizes["VmRSS"], sizes["RssAnon"])
