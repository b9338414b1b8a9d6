"""The command: rejected options, stored results, and redrawn tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bench import machine
from bench.batch import measure, omb
from bench.batch.command import command
from bench.batch.plan import FULL_SPEED
from bench.batch.systems import Builds
from tests.bench.batch.batch_runs import run


def test_an_unknown_workload_is_refused() -> None:
    result = CliRunner().invoke(command, ["--only", "nothing"])
    assert result.exit_code == 2
    assert "--list names the workloads" in result.output


def test_the_benchmark_itself_has_a_plan_and_results_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(omb.VARIABLE, str(tmp_path))
    monkeypatch.setattr(measure, "builds_for", lambda steps: Builds(None, None))
    monkeypatch.setattr(measure, "measure", lambda steps, builds: [run(FULL_SPEED)])
    monkeypatch.setattr(machine, "touch_memory", lambda: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=60e9))
    runner = CliRunner()
    listed = runner.invoke(command, ["--list"]).output
    assert "full-speed" in listed
    assert "own-" not in listed
    for wrong in (["--quick"], ["--warm-up", "30"], ["--seconds", "90"]):
        refused = runner.invoke(command, wrong)
        assert (refused.exit_code, "times are whole minutes" in refused.output) == (2, True)
    for arguments in (["--only", "full-speed"], ["--redraw"]):
        kept = runner.invoke(command, [*arguments, "--into", str(tmp_path)])
        assert kept.exit_code == 0, kept.output
        assert (tmp_path / "batch_omb.md").read_text().startswith("The load is the OpenMessaging Benchmark itself")
    assert {path.name for path in tmp_path.iterdir()} == {"batch_omb.md", "batch_omb.json"}


def test_the_benchmark_itself_needs_room_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(omb.VARIABLE, str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=59e9))
    refused = CliRunner().invoke(command, ["--only", "full-speed"])
    assert refused.exit_code == 2
    assert "has 59 GB free and a run may need 60" in refused.output


def test_results_are_kept_and_drawn_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "builds_for", lambda steps: Builds(None, None))
    monkeypatch.setattr(measure, "measure", lambda steps, builds: [run(FULL_SPEED)])
    runner = CliRunner()
    kept = runner.invoke(command, ["--quick", "--into", str(tmp_path)])
    assert kept.exit_code == 0, kept.output
    written = {name: (tmp_path / name).read_bytes() for name in ("batch.md", "batch.json", "batch.svg")}
    (tmp_path / "batch.png").unlink()
    (tmp_path / "batch.svg").unlink()
    again = runner.invoke(command, ["--redraw", "--into", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert (tmp_path / "batch.png").exists()
    assert {name: (tmp_path / name).read_bytes() for name in written} == written


@pytest.mark.parametrize("kept", [None, "{", "{}", '{"values": [1]}'])
def test_what_cannot_be_drawn_anew_is_told_of(tmp_path: Path, kept: str | None) -> None:
    if kept is not None:
        (tmp_path / "batch.json").write_text(kept)
        (tmp_path / "batch.md").write_text("table")
    refused = CliRunner().invoke(command, ["--redraw", "--into", str(tmp_path)])
    assert refused.exit_code == 2
    assert "no results of an earlier run" in refused.output
