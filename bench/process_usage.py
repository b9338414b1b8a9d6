"""What a process has used: CPU time and resident memory; and what nobody here has used. From /proc (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STEAL = 7
"""Which of the times of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal, ..."""


@dataclass(frozen=True)
class Memory:
    """Resident bytes: all of them, and those of no file (heap, stacks), which nobody else shares."""

    resident: int
    anonymous: int


def cpu_seconds(pid: int, *, of_children: bool = False) -> float:
    """CPU seconds of all threads of a process since it started, in user and kernel mode (10 ms steps); or those of its
    children that have ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[13:15] if of_children else fields[11:13]
    return (int(user) + int(system)) / _TICKS_PER_SECOND


def stolen_seconds() -> float:
    """CPU seconds, of all CPUs since the machine started, in which the host of a virtual machine let them wait."""
    user_to_guest = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    return int(user_to_guest[_STEAL]) / _TICKS_PER_SECOND


def memory(pid: int) -> Memory:
    """Resident memory now. Pages of mapped files count in `resident` while they are in memory."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "RssAnon"}:
            sizes[name] = int(value.split()[0]) * 1024
    return Memory(sizes["VmRSS"], sizes["RssAnon"])
