"""The end of a failed run: its reason is kept, and what follows does not hide it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from e2e import __main__ as run
from e2e import evidence
from e2e.errors import Failed, Unanswered
from e2e.kubernetes import Kubernetes


class NoCluster(Kubernetes):
    """A cluster whose commands all fail."""

    def run(self, command: list[str], *, given: str | None = None, timeout: float) -> str:
        raise Unanswered(f"{command[1]}: no cluster")


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "tool", lambda name: name)
    monkeypatch.setattr("e2e.kubernetes.tool", lambda name: name)
    monkeypatch.setattr("e2e.kubernetes.engine", lambda: "docker")
    monkeypatch.setattr(run, "Kubernetes", NoCluster)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path / prefix))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["e2e"])


def test_the_reason_of_a_failure_is_kept_with_its_place(tmp_path: Path) -> None:
    try:
        raise Failed("1 record is lost")
    except Failed as error:
        evidence.save(NoCluster("none", tmp_path), tmp_path / "evidence", error)
    text = (tmp_path / "evidence" / "failure.txt").read_text()
    assert "1 record is lost" in text
    assert 'raise Failed("1 record is lost")' in text
    assert "no cluster" in (tmp_path / "evidence" / "pods.txt").read_text()


@pytest.mark.parametrize(("lost", "code"), [(False, 0), (True, 1)])
def test_a_cluster_that_is_not_deleted_does_not_change_the_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, lost: bool, code: int
) -> None:
    folder = tmp_path / "raptormq-e2e-"
    folder.mkdir()

    def steps(*_: object, spark: bool) -> None:
        assert spark
        if lost:
            raise Failed("1 record is lost")

    monkeypatch.setattr(run, "run", steps)
    assert run.main() == code
    said = capsys.readouterr().out
    assert "the cluster was not deleted: delete: no cluster" in said
    assert ("FAILED: 1 record is lost" in said, folder.exists()) == (lost, lost)
