"""What README and the guide to the Python client show runs as it is written, against `raptormq dev`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.broker_process import running_broker

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLIENT_PAGE = (ROOT / "docs" / "guides" / "python-client.md").read_text(encoding="utf-8")
COOKBOOK = (ROOT / "docs" / "guides" / "cookbook.md").read_text(encoding="utf-8")


def programs_of(page: str) -> dict[str, str]:
    """The programs of a page by the titles of their sections."""
    return dict(re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE))


PROGRAMS = programs_of(CLIENT_PAGE) | programs_of(COOKBOOK)
README_ADDRESS = "127.0.0.1:9876"

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("readme")) as address:
        yield address


def shell_session() -> list[str]:
    """The commands of README that need a running broker."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    (session,) = [block for block in blocks if "raptormq produce" in block]
    lines = [line.split("  #")[0].strip() for line in session.splitlines()]
    assert lines[0] == ". .venv/bin/activate"
    return lines[1:]


def run(command: list[str], name_server: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"NAMESRV_ADDR": name_server, "PATH": path}
    finished = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_shell_session(name_server: str) -> None:
    printed = {command: run(["bash", "-c", command], name_server) for command in shell_session()}
    assert len(printed) == 5
    (consumed,) = [output for command, output in printed.items() if command.startswith("raptormq consume")]
    assert sorted(consumed.split()) == ["hello", "world"]
    (described,) = [output for command, output in printed.items() if command.startswith("raptormq cluster")]
    assert "broker-a" in described
    (progress,) = [output for command, output in printed.items() if command.startswith("raptormq group")]
    assert "greetings" in progress


def test_the_python_program(name_server: str) -> None:
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "asyncio.run" in block]
    assert README_ADDRESS in program
    printed = run([sys.executable, "-c", program.replace(README_ADDRESS, name_server)], name_server)
    assert "b'hello'" in printed.splitlines()


@pytest.mark.parametrize(
    ("title", "printed"),
    [
        ("Send and consume", "b'17 books'"),
        ("In order", "account 8 has 600"),
        ("Plain functions as listeners", "[b'open', b'deposit', b'close']"),
        ("Back pressure", "1000 ticks"),
        ("Request and reply", "b'HOW MANY?'"),
        ("Ending on a signal", ""),
        ("Dead letters", "no dead letters"),
        ("Without asyncio", "b'line 2'"),
        ("From a place, or a time", "b'second'"),
        ("Whole batches", "1000 readings"),
        ("Later", ""),
        ("With a local transaction", "TransactionState.COMMIT True"),
        ("Topics and figures", "'invoices'"),
        ("Messages by key and id", "b'18 books'"),
        ("Account notifications in order by account", "account 8: 99 notifications, in order: True"),
        ("An idempotent consumer", "6 deliveries, balance 60"),
    ],
)
def test_the_programs_of_the_guides(name_server: str, title: str, printed: str) -> None:
    assert printed in run([sys.executable, "-c", PROGRAMS[title]], name_server)


def test_every_program_of_the_guides_is_tried() -> None:
    assert len(PROGRAMS) == (CLIENT_PAGE + COOKBOOK).count("```python") == 16


def test_every_program_of_the_guides_is_well_typed(tmp_path: Path) -> None:
    for number, program in enumerate(PROGRAMS.values()):
        (tmp_path / f"program_{number}.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    places = ["--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    finished = subprocess.run([*command, *places], check=False, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert finished.returncode == 0, finished.stdout
