"""mqadmin 5.3.3 administers a name server that requires signatures, and is refused without them.

Apache RocketMQ's name servers require none, so there is no reference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.mqadmin import Place, run
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build
from tests.interop.test_access_control import SECURED

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

COMMANDS = {
    "wipeWritePerm|-b|broker-a": "wipe write perm of broker[broker-a]",
    "addWritePerm|-b|broker-a": "add write perm of broker[broker-a]",
    "updateNamesrvConfig|-k|orderMessageEnable|-v|true": "update name server config success",
    "getNamesrvConfig": "orderMessageEnable",
    "updateKvConfig|-s|ns|-k|key|-v|value": "create or update kv config to namespace success",
    "deleteKvConfig|-s|ns|-k|key": "delete kv config from namespace success",
    "createUser|-b|{server}|-u|anna|-p|anna-secret": "create user to",
    "listUser|-b|{server}": "anna",
    "deleteUser|-b|{server}|-u|anna": "delete user to",
    "topicList": "broker-a",
}
"""Commands, and the output of a successful one."""


def played(server: RaptorMQDev, folder: Path) -> list[str]:
    commands = [command.replace("{server}", server.name_servers).split("|") for command in COMMANDS]
    return run(build(), Place(server.name_servers, f"127.0.0.1:{server.broker_port}", folder), commands)


def test_commands_work_signed_and_are_refused_unsigned(tmp_path: Path) -> None:
    with RaptorMQDev(tmp_path / "dev", settings=SECURED) as server:
        refused = played(server, tmp_path)
        (tmp_path / "conf").mkdir()
        keys = "accessKey: root\nsecretKey: root-secret\n"
        (tmp_path / "conf" / "tools.yml").write_text(keys, encoding="utf-8")
        outputs = played(server, tmp_path)
    for (command, expected), output, refusal in zip(COMMANDS.items(), outputs, refused, strict=True):
        assert expected in output, command
        assert "username cannot be null" in refusal, command
