"""mqadmin's commands for users and policies have the same output, including remarks, as with Apache RocketMQ 5.3.3.

`reference_mqadmin_users.json` is the output of the reference. This writes it again::

    python -m tests.interop.test_mqadmin_users
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest

from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin_users import COMMANDS, NAMES, PROVIDERS, Brokers, printed
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.test_access_control import SECURED

REFERENCE = Path(__file__).with_name("reference_mqadmin_users.json")
TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mqadmin.md"
EXPECTED: dict[str, list[str]] = json.loads(REFERENCE.read_text(encoding="utf-8")) if REFERENCE.exists() else {}
ROOT = {"user": "root", "secret": "root-secret"}

Servers = RaptorMQDev | RocketMQServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("mqadmin-users")
    with (
        RaptorMQDev(folder / "one", settings=SECURED) as one,
        RaptorMQDev(folder / "other", settings=SECURED) as other,
    ):
        return printed(build(), _brokers(one, other, folder), **ROOT)


@pytest.mark.parametrize("command", EXPECTED)
def test_a_command_prints_what_it_prints_with_the_reference(outputs: dict[str, list[str]], command: str) -> None:
    assert outputs[command] == EXPECTED[command]


def test_every_command_has_a_reference() -> None:
    assert set(NAMES) == set(EXPECTED)


def test_the_documentation_names_these_commands() -> None:
    (named,) = re.findall(r"^\| (.*) \| works, signed", TABLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(re.findall(r"\w+", named)) == {command[0] for command in COMMANDS}


def _brokers(one: Servers, other: Servers, folder: Path) -> Brokers:
    return Brokers(one.name_servers, f"127.0.0.1:{one.broker_port}", f"127.0.0.1:{other.broker_port}", folder)


def make_reference() -> None:
    built = build()
    settings = PATIENCE | SECURED | PROVIDERS
    with (
        tempfile.TemporaryDirectory() as scratch,
        RocketMQServers(built, Path(scratch) / "one", settings=settings, heap="256m") as one,
        RocketMQServers(built, Path(scratch) / "other", settings=settings, heap="256m") as other,
    ):
        document = printed(built, _brokers(one, other, Path(scratch)), **ROOT)
    REFERENCE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_reference()
