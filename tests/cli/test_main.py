"""The entry point: exit codes, one line per failure, help of every command, and modules that must not be imported."""

from __future__ import annotations

import gc
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest

from raptormq.cli import main as entry_point
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.lazy_group import LazyGroup
from raptormq.cli.main import cli, run
from raptormq.errors import ConnectionClosed, NoRoute, RaptorMQError, RequestTimeout, ServerError

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def caused(error: BaseException, **causes: BaseException) -> BaseException:
    """Return `error` with a chain of causes."""
    last = error
    for cause in causes.values():
        last.__cause__ = cause
        last = cause
    return error


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    """Return the path of every command below a group."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, *path, name)
    return found


@pytest.mark.parametrize("path", [(), *commands(cli)], ids=" ".join)
def test_every_command_has_help_with_examples(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:\n" in text
    examples = text.partition("Examples:")[2]
    assert f"raptormq {' '.join(path)}".rstrip() in examples
    for line in filter(None, map(str.strip, examples.splitlines())):
        assert ";" not in shlex.shlex(line, posix=True, punctuation_chars=";"), f"a shell would split {line}"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "raptormq: No such command 'nope'; see raptormq --help\n"),
        (["consume"], "raptormq: Missing argument 'TOPIC'; see raptormq consume --help\n"),
        (
            ["topic", "create", "t", "--queues", "0"],
            "0 is not in the range 1<=x<=65536; see raptormq topic create --help\n",
        ),
        (["topic", "create", "t", "--attribute", "x"], "'x' is not KEY=VALUE; see raptormq topic create --help\n"),
        (
            ["topic", "list", "--timeout", "inf"],
            "'inf' is not a number of seconds above 0; see raptormq topic list --help\n",
        ),
        (
            ["topic", "list", "--timeout", "1e99"],
            "'1e99' is more than 2147483647 seconds; see raptormq topic list --help\n",
        ),
        (
            ["topic", "list", "-n", " ; "],
            "the list of name servers is empty; expected HOST:PORT[;HOST:PORT]; see raptormq topic list --help\n",
        ),
        (
            ["produce", "t", "--key", "a b"],
            "'a b' is not a key: a key has no spaces; repeat --key for several keys; see raptormq produce --help\n",
        ),
        (["produce", "t", "--key", ""], "repeat --key for several keys; see raptormq produce --help\n"),
        (
            ["consume", "t", "--sql", "a ="],
            "raptormq: not a filter: unexpected end of the filter at position 3\n",
        ),
        (["topic", "list", "-n", "nowhere"], "raptormq: address 'nowhere' is not host:port\n"),
        (["namesrv", "-c", "/nonexistent.conf"], "/nonexistent.conf: No such file or directory\n"),
        (
            ["produce", "t", "/nonexistent.txt"],
            "'/nonexistent.txt': No such file or directory; see raptormq produce --help\n",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("raptormq: ")
    assert captured.err.endswith(line)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (RaptorMQError("it is\nbroken"), 2, "raptormq: it is broken\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "raptormq: [Errno 13] Permission denied: '/x'\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (click.ClickException("no"), 2, "raptormq: no\n"),
        (RequestTimeout("late"), 3, "raptormq: late\n"),
        (NoRoute("nowhere"), 4, "raptormq: nowhere\n"),
        (ServerError(17, "no topic"), 4, "raptormq: code 17: no topic\n"),
        (ServerError(16, "no"), 5, "raptormq: code 16: no\n"),
        (ServerError(1, "bug"), 2, "raptormq: code 1: bug\n"),
        (CommandFailed("gone", ExitCode.NOT_FOUND), 4, "raptormq: gone\n"),
        (
            caused(CommandFailed("hint"), by=CommandFailed("late"), by_that=ConnectionClosed("cut")),
            3,
            "raptormq: hint\n",
        ),
    ],
)
def test_what_a_command_raises_becomes_an_exit_code(
    raised: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_context: Any) -> None:
        raise raised

    monkeypatch.setattr(cli, "invoke", fail)
    assert run(["namesrv"]) == code
    assert capsys.readouterr().err == line


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: raptormq" in capsys.readouterr().err


def test_the_process_ends_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as stop:
        entry_point(["nope"])
    assert stop.value.code == 2


def test_the_installed_command_says_its_version(raptormq: Run) -> None:
    done = raptormq("--version")
    assert done.returncode == 0
    assert done.stdout.startswith(b"raptormq ")


def test_a_server_loads_neither_the_client_nor_the_table_printer() -> None:
    code = "import raptormq.cli.dev, sys; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "raptormq.broker.config.config" in loaded
    for heavy in ("raptormq.client", "rich", "pyspark", "pyarrow", "kopf"):
        assert heavy not in loaded


@pytest.mark.parametrize(("name", "end"), [("whole_command", ""), ("broken_command", "raise ImportError\n")])
def test_garbage_is_collected_before_and_after_a_command_is_imported(
    name: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import gc, sys, click\nsys.collects.append(gc.isenabled())\n@click.command()\ndef run(): ...\n"
    (tmp_path / f"{name}.py").write_text(source + end)
    monkeypatch.syspath_prepend(tmp_path)
    collects: list[bool] = []
    monkeypatch.setattr(sys, "collects", collects, raising=False)
    group = LazyGroup({"run": (f"{name}:run", "")}, name="group", summary="", epilog="")
    with pytest.raises(ImportError) if end else nullcontext():
        group.get_command(click.Context(group), "run")
    assert collects == [False]
    assert gc.isenabled()


def test_other_packages_add_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands of entry points: they cannot replace a command of RaptorMQ, and one that cannot be loaded reports its
    requirement.
    """
    added = [
        EntryPoint("extra", "tests.cli.test_main:extra_command", "raptormq.commands"),
        EntryPoint("broken", "no_such_package.commands:broken", "raptormq.commands"),
        EntryPoint("topic", "tests.cli.test_main:extra_command", "raptormq.commands"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: added)
    assert run(["--help"]) == 0
    assert "extra          Commands of the package tests." in capsys.readouterr().out
    assert run(["extra"]) == 0
    assert capsys.readouterr().out == "something else\n"
    assert run(["topic", "--help"]) == 0
    assert "something else" not in capsys.readouterr().out
    assert run(["broken"]) == 2
    assert capsys.readouterr().err == "raptormq: cannot load command broken: No module named 'no_such_package'\n"
    assert run(["nope"]) == 2


@click.command()
def extra_command() -> None:
    """Do something else."""
    click.echo("something else")


def test_the_spark_package_adds_its_commands() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert declared["project"]["entry-points"]["raptormq.commands"] == {"spark": "pyspark_raptormq.commands:spark"}
    assert isinstance(EntryPoint("spark", "pyspark_raptormq.commands:spark", "").load(), click.Group)
