"""The start of a system: a second attempt after a failure, and its stop in every case."""

from __future__ import annotations

import pytest

from bench.batch.systems import started
from tests.interop.rocketmq_java import ProcessError


class Server:
    """A system that starts unless the attempt must fail."""

    def __init__(self, attempt: str, failing: tuple[str, ...]) -> None:
        self.attempt = attempt
        self.killed = False
        self._failing = failing

    def start(self) -> None:
        if self.attempt in self._failing:
            raise ProcessError(f"{self.attempt}: address already in use")

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(("failing", "serves"), [((), "first"), (("first",), "second")])
def test_a_system_gets_a_second_try(failing: tuple[str, ...], serves: str) -> None:
    with started(lambda attempt: Server(attempt, failing)) as server:
        assert server.attempt == serves
        assert not server.killed
    assert server.killed


def test_a_third_try_there_is_not() -> None:
    with (
        pytest.raises(ProcessError, match="second: address"),
        started(lambda attempt: Server(attempt, ("first", "second"))),
    ):
        pass


def test_a_failed_load_ends_the_system() -> None:
    server = Server("first", ())
    with pytest.raises(RuntimeError), started(lambda attempt: server):
        raise RuntimeError
    assert server.killed
