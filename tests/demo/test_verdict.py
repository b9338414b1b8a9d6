"""The exit code of the demo: 0 if every figure is equal, otherwise 1 with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo import __main__ as demo_main
from demo.broker_process import BrokerFailed
from demo.source_lines import Figures, count, library_files
from raptormq.errors import RaptorMQError, RequestTimeout


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(b"one\ntwo\n")
    return tmp_path


def outcome(library: Path, monkeypatch: pytest.MonkeyPatch, result: dict[str, Figures] | Exception) -> int:
    def through_the_broker(*_: object) -> dict[str, Figures]:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(demo_main, "_through_the_broker", through_the_broker)
    return demo_main.main(library)


def test_equal_figures_are_a_success(
    library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(library, monkeypatch, count(library_files(library))) == 0
    assert "Equal" in capsys.readouterr().out


@pytest.mark.parametrize("counted", [{}, {"a": Figures(3, 8, 0)}, {"b": Figures(2, 8, 0)}])
def test_other_figures_are_a_failure(
    counted: dict[str, Figures],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome(library, monkeypatch, counted) == 1
    assert "NOT equal" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        BrokerFailed("it did not start"),
        RequestTimeout("it did not answer"),
        ExceptionGroup("senders", [RequestTimeout("it did not answer"), RaptorMQError("another")]),
    ],
)
def test_a_failed_stage_is_one_line(
    error: Exception,
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome(library, monkeypatch, error) == 1
    assert "demo failed: it did not" in capsys.readouterr().out
