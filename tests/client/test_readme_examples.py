"""The programs in README and in the guides to the Python client run unchanged with `raptormq dev`."""

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
BATCHES = (ROOT / "docs" / "guides" / "batches.md").read_text(encoding="utf-8")
COOKBOOK = (ROOT / "docs" / "guides" / "cookbook.md").read_text(encoding="utf-8")
OBSERVABILITY = (ROOT / "docs" / "guides" / "observability.md").read_text(encoding="utf-8")
FASTSTREAM = (ROOT / "docs" / "guides" / "faststream.md").read_text(encoding="utf-8")
PAGES = [CLIENT_PAGE, BATCHES, COOKBOOK, OBSERVABILITY, FASTSTREAM]


def programs_of(page: str) -> dict[str, str]:
    """Return the programs of a page by the titles of their sections."""
    return dict(re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE))


PROGRAMS = {title: program for page in PAGES for title, program in programs_of(page).items()}
README_ADDRESS = "127.0.0.1:9876"

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("readme")) as address:
        yield address


def shell_session() -> list[str]:
    """Return the commands of README that need a running broker."""
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
        ("In a loop", "3 bills"),
        ("Plain functions as listeners", "[b'open', b'deposit', b'close']"),
        ("Back pressure", "1000 ticks"),
        ("Request and reply", "b'HOW MANY?'"),
        ("Stopping on a signal", ""),
        ("Interceptors", "'consumed from measured': 1"),
        ("Metrics for Prometheus", 'consumed_total{group="metering",result="consumed",topic="metered"} 1.0'),
        ("Traces with OpenTelemetry", "process traced\n"),
        ("Message trace", "['SubAfter', "),
        ("Dead letters", "no dead letters"),
        ("Without asyncio", "b'line 2'"),
        ("Reading from an offset or a time", "b'second'"),
        ("Polling as a member of a group", "total "),
        ("Without queues", "3 pictures"),
        ("What a client does now", "lag 1"),
        ("Whole batches", "1000 readings"),
        ("Delayed messages", ""),
        ("Transactions", "TransactionState.COMMIT True"),
        ("Topics, groups and lag", "'invoices'"),
        ("Messages by key and id", "b'18 books'"),
        ("Tests of an application", "b'call back'"),
        ("Account notifications in order by account", "account 8: 99 notifications, in order: True"),
        ("An idempotent consumer", "6 deliveries, balance 60"),
        ("Counts that move with their queues", "{'even': 30, 'odd': 30}"),
        ("Calls of a service that is sometimes down", "'done': 29"),
        ("An application", "invoice for purchase 17 with headers ['content-type', 'correlation_id']"),
        ("Tests of handlers", "billed once"),
        ("Sending", "1000 bills"),
        ("Receiving", "100 parts"),
        ("Encryption", "b'the price'"),
    ],
)
def test_the_programs_of_the_guides(name_server: str, title: str, printed: str) -> None:
    assert printed in run([sys.executable, "-c", PROGRAMS[title]], name_server)


def test_every_program_of_the_guides_is_tried() -> None:
    assert len(PROGRAMS) == sum(page.count("```python") for page in PAGES) == 32


def test_every_program_of_the_guides_is_well_typed(tmp_path: Path) -> None:
    for number, program in enumerate(PROGRAMS.values()):
        (tmp_path / f"program_{number}.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    places = ["--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    finished = subprocess.run([*command, *places], check=False, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert finished.returncode == 0, finished.stdout
