"""Ports of one test process are not given to another one, although nothing listens on them yet."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import ports
from tests.ports import free_port_run, reserved_port

TAKE = "import sys; from tests import ports; print(ports._reserve(int(sys.argv[1])))"


def can_be_taken(port: int) -> bool:
    taken = subprocess.run([sys.executable, "-c", TAKE, str(port)], capture_output=True, text=True, check=True)
    return taken.stdout == "True\n"


def test_a_run_of_ports_is_reserved_as_long_as_the_process_runs() -> None:
    port = free_port_run(before=1, after=1)
    assert not any(map(can_be_taken, range(port - 1, port + 2)))


def test_reservations_take_one_descriptor() -> None:
    free_port_run(before=0, after=0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        free_port_run(before=2, after=1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_port_of_a_test_is_reserved() -> None:
    with reserved_port() as port:
        assert not can_be_taken(port)


def test_two_threads_do_not_reserve_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port_run(before=0, after=0)
    ports._release(port)
    both = threading.Barrier(2, timeout=30)
    lock = fcntl.lockf

    def lock_at_once(descriptor: int, kind: int, length: int, start: int) -> None:
        if kind != fcntl.LOCK_UN:
            try:
                both.wait(0.2)
            except threading.BrokenBarrierError:
                pass
        lock(descriptor, kind, length, start)

    monkeypatch.setattr(fcntl, "lockf", lock_at_once)
    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(ports._reserve, [port, port])) == [False, True]
