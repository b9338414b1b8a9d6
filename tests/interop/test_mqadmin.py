"""mqadmin 5.3.3 against `raptormq dev`: every command prints what it prints with Apache RocketMQ 5.3.3.

`reference_mqadmin.json` holds the outputs of the reference (`make_mqadmin_reference.py`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.interop.mqadmin import ANSWERED, COMMANDS, SETTINGS, Place, reduced, run
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build

REFERENCE: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("reference_mqadmin.json").read_text(encoding="utf-8")
)
TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mqadmin.md"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    built = build()
    with RaptorMQDev(tmp_path_factory.mktemp("mqadmin"), settings=SETTINGS) as servers:
        place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", servers.folder)
        commands = COMMANDS + [command.split("|") for command in ANSWERED]
        printed = run(built, place, commands)
    return {" ".join(command): reduced(output) for command, output in zip(commands, printed, strict=True)}


@pytest.mark.parametrize("command", REFERENCE)
def test_a_command_prints_what_it_prints_with_the_reference(outputs: dict[str, list[str]], command: str) -> None:
    assert outputs[command] == REFERENCE[command]


@pytest.mark.parametrize(("command", "found"), ANSWERED.items())
def test_a_command_is_answered_with_keys_of_our_own(
    outputs: dict[str, list[str]], command: str, found: tuple[str, ...]
) -> None:
    text = "\n".join(outputs[command.replace("|", " ")]).replace(" = ", "=").replace(" =", "=")
    assert [word for word in found if word not in text] == []


def test_every_command_has_a_reference() -> None:
    assert {" ".join(command) for command in COMMANDS} == set(REFERENCE)


def test_the_documentation_names_every_command_that_is_played() -> None:
    table = TABLE.read_text(encoding="utf-8")
    works = set(re.findall(r"^\| `(\w+)` \| works", table, flags=re.MULTILINE))
    assert works == {command[0] for command in COMMANDS if command[0][0] != "+"}
    (answered,) = re.findall(r"^\| (.*) \| answered", table, flags=re.MULTILINE)
    assert set(re.findall(r"\w+", answered)) == {command.split("|")[0] for command in ANSWERED}
