"""Common fixtures and hooks: `async def` tests on uvloop with a time limit, free ports, and random orders by `--shuffle
SEED`.

An `async def test_*` needs no marker and no plugin. It runs on its own event loop, of the same type as that of the
servers, and fails after 100 seconds. pytest-timeout bounds everything else (pyproject.toml).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.ports import reserved_port

ASYNC_SHARE_OF_TIMEOUT = 5 / 6
"""Time limit of a test coroutine. It is less than that of pytest-timeout, so that the cancelled coroutine can
clean up.
"""

# Shells start background jobs with SIGINT ignored, and some CI runners start every process like this. Child processes
# inherit it, and the programs that tests interrupt would not end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The duration of an example depends on the machine.
settings.register_profile("raptormq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raptormq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the tests in the random order that SEED stands for"
    )


@pytest.hookimpl(trylast=True)  # pytest groups tests by the fixtures that they share
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reorder the tests randomly with `--shuffle`, in the same order in every process of the run."""
    seed = config.getoption("shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the option that reproduces the order."""
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
    """Run a coroutine function on a new uvloop. Leave all other functions to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    with warnings.catch_warnings(record=True) as left_open:
        # As an error, like other warnings, it would prevent uvloop from closing the remaining handles, and the loop
        # waits for them.
        warnings.filterwarnings("always", "unclosed resource", ResourceWarning)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_bounded(pyfuncitem.obj, arguments, _async_timeout_s(pyfuncitem)))
    assert not left_open, "; ".join(str(warning.message) for warning in left_open)
    return True


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """Restore the logging configuration that a command under test has changed."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def _base_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the folder of all `tmp_path` at the start. Two threads that made it first would remove it for each other."""
    tmp_path_factory.getbasetemp()


@pytest.fixture
def free_port() -> Iterator[int]:
    """A free TCP port of 127.0.0.1."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def free_ports() -> Iterator[Callable[[int], list[int]]]:
    """`free_ports(n)`: n different free TCP ports of 127.0.0.1."""
    with ExitStack() as reserved:
        yield lambda count: [reserved.enter_context(reserved_port()) for _ in range(count)]
