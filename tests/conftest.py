"""What every test has: `async def` tests on uvloop with a time limit, and a port that is free. `--shuffle SEED` takes
the tests in another order.

Asyncio tests need no marker and no plugin: an `async def test_*` runs on an event loop of its own, the loop the servers
use too. A test that hangs fails after 100 seconds and says so; pytest-timeout bounds everything else (pyproject.toml).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import signal
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings

ASYNC_SHARE_OF_TIMEOUT = 5 / 6
"""A coroutine is cancelled before pytest-timeout ends its test, so that what it started is closed."""

# A shell starts background jobs, and some CI runners start everything, with SIGINT ignored; children inherit that, and
# the programs that tests interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine and nothing about the code.
settings.register_profile("raptormq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raptormq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the tests in the random order that SEED stands for"
    )


@pytest.hookimpl(trylast=True)  # pytest itself brings together the tests that share a fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--shuffle`, take the tests in an order that is random and the same in every process of the run."""
    seed = config.getoption("shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say, behind what failed, how to get this order again."""
    seed = config.getoption("shuffle")
    if seed is not None:
        terminalreporter.write_line(f"the order of the tests was that of --shuffle {seed}")


def _async_timeout_s(item: pytest.Function) -> float | None:
    marker, config = item.get_closest_marker("timeout"), item.config
    timeout_s = marker.args[0] if marker else config.getoption("timeout") or config.getini("timeout")
    return ASYNC_SHARE_OF_TIMEOUT * float(timeout_s) if timeout_s else None


async def _run_bounded(test: Callable[..., Any], arguments: dict[str, Any], timeout_s: float | None) -> None:
    async with asyncio.timeout(timeout_s):
        await test(**arguments)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test function on a fresh uvloop; leave every other function to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    with warnings.catch_warnings(record=True) as left_open:
        # An error, as other warnings are, would keep uvloop from closing what is left open; its loop waits for that.
        warnings.filterwarnings("always", "unclosed resource", ResourceWarning)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_bounded(pyfuncitem.obj, arguments, _async_timeout_s(pyfuncitem)))
    assert not left_open, "; ".join(str(warning.message) for warning in left_open)
    return True


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """What a command under test makes of logging is not what the next test finds."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A TCP port of 127.0.0.1 that nobody gets who binds to port 0 or connects somewhere: Linux gives those out from
    32768 on. So what is free when a test begins is free when it comes to use it. The name of an abstract socket keeps
    other test processes off the port."""
    while True:
        port = _chance.randrange(20_000, 32_000)
        with socket.socket(socket.AF_UNIX) as reservation, socket.socket() as probe:
            try:
                reservation.bind(f"\0raptormq-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            probe.close()
            yield port
            return


_chance = random.SystemRandom()


@pytest.fixture
def free_port() -> Iterator[int]:
    """One TCP port of 127.0.0.1 that nobody listens on."""
    with _reserved_port() as port:
        yield port


@pytest.fixture
def free_ports() -> Iterator[Callable[[int], list[int]]]:
    """`free_ports(n)`: n different TCP ports of 127.0.0.1 that nobody listens on."""
    with ExitStack() as reserved:
        yield lambda count: [reserved.enter_context(_reserved_port()) for _ in range(count)]
