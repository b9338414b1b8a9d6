"""mqadmin 5.3.3 and the newest one with `raptormq dev`: every command has the same output as with Apache RocketMQ of
the same release.

`reference_mqadmin.json` and `reference_mqadmin_newest.json` contain these outputs (`make_mqadmin_reference.py`).
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.mqadmin import (
    ANSWERED,
    NEWEST_COMMANDS,
    OF_THE_SERVER,
    REFERENCES,
    SCRIPTS,
    SETTINGS,
    Place,
    reduced,
    run,
)
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import Release, build

REFERENCE: dict[Release, dict[str, list[str]]] = {
    release: json.loads(path.read_text(encoding="utf-8")) for release, path in REFERENCES.items()
}
CASES = [
    pytest.param(release, command, id=f"{release.value} {command}")
    for release in REFERENCE
    for command in REFERENCE[release]
]
TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mqadmin.md"
Outputs = dict[Release, dict[str, list[str]]]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Outputs of both releases, which run concurrently with separate servers."""
    built = build()
    # Fixtures of pytest belong to the main thread: two first calls of mktemp make the base folder twice.
    folders = {release: tmp_path_factory.mktemp("mqadmin") for release in REFERENCE}

    def played(release: Release) -> dict[str, list[str]]:
        with RaptorMQDev(folders[release], settings=SETTINGS) as servers:
            place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", servers.folder)
            commands = SCRIPTS[release] + [command.split("|") for command in ANSWERED]
            printed = run(built, place, commands, release=release)
        return {" ".join(command): reduced(output) for command, output in zip(commands, printed, strict=True)}

    with ThreadPoolExecutor() as pool:
        return dict(zip(REFERENCE, pool.map(played, REFERENCE), strict=True))


@pytest.mark.parametrize(("release", "command"), CASES)
def test_a_command_prints_what_it_prints_with_the_reference(outputs: Outputs, release: Release, command: str) -> None:
    server = Release.REFERENCE if command in OF_THE_SERVER else release
    assert outputs[release][command] == REFERENCE[server][command]


@pytest.mark.parametrize("release", REFERENCE)
@pytest.mark.parametrize(("command", "found"), ANSWERED.items())
def test_a_command_is_answered_with_keys_of_our_own(
    outputs: Outputs, release: Release, command: str, found: tuple[str, ...]
) -> None:
    text = "\n".join(outputs[release][command.replace("|", " ")]).replace(" = ", "=").replace(" =", "=")
    assert [word for word in found if word not in text] == []


@pytest.mark.parametrize("release", REFERENCE)
def test_every_command_has_a_reference(release: Release) -> None:
    assert {" ".join(command) for command in SCRIPTS[release]} == set(REFERENCE[release])


def test_the_documentation_names_every_command_that_is_played() -> None:
    table = TABLE.read_text(encoding="utf-8")
    works = set(re.findall(r"^\| `(\w+)` \| works", table, flags=re.MULTILINE))
    assert works == {command[0] for command in NEWEST_COMMANDS if command[0][0] != "+"}
    (answered,) = re.findall(r"^\| (.*) \| answered", table, flags=re.MULTILINE)
    assert set(re.findall(r"\w+", answered)) == {command.split("|")[0] for command in ANSWERED}
