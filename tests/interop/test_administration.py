"""The commands for users, permissions, groups and settings, with a broker of Apache RocketMQ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.secured import ROOT, ROOT_PASSWORD, Secured
from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin_users import PROVIDERS
from tests.interop.rocketmq_java import RocketMQServers, build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    user = json.dumps({"username": ROOT, "password": ROOT_PASSWORD})
    own = json.dumps({"accessKey": ROOT, "secretKey": ROOT_PASSWORD})
    access = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": user,
        "innerClientAuthenticationCredentials": own,
    }
    settings = PATIENCE | access | PROVIDERS
    folder: Path = tmp_path_factory.mktemp("administered")
    with RocketMQServers(build(), folder, settings=settings) as servers:
        yield Secured(servers.name_servers)


def test_users_and_permissions(secured: Secured) -> None:
    secured.create("alice", "alice-secret")
    assert secured.fails("user", "create", "alice", "--password-file", "-", stdin=b"x")[0] == 2
    entry = ["alice", "--resource", "Topic:orders*"]
    secured.says("acl", "create", *entry, "--action", "pub", "--source-ip", "127.0.0.1")
    assert secured.fails("acl", "create", *entry, "--action", "pub")[0] == 2
    secured.says("acl", "update", *entry, "--action", "sub", "--decision", "deny")
    [shown] = secured.json("acl", "show", "alice")
    assert (shown["resource"], shown["actions"], shown["source_ips"], shown["decision"], shown["policy"]) == (
        "Topic:orders*",
        ["sub"],
        ["127.0.0.1"],
        "deny",
        "custom",
    )
    secured.says("acl", "delete", *entry, "--yes")
    assert secured.fails("acl", "show", "alice")[0] == 4
    secured.says("user", "update", "alice", "--status", "disable")
    listed = secured.json("user", "list")
    assert [(each["username"], each["type"], each["status"]) for each in listed] == [
        ("alice", "normal", "disable"),
        (ROOT, "super", "enable"),
    ]
    assert ROOT_PASSWORD not in json.dumps(listed)
    secured.says("user", "delete", "alice", "--yes")
    assert secured.fails("user", "show", "alice")[0] == 4


def test_groups_and_settings(secured: Secured) -> None:
    secured.says("group", "create", "workers", "--max-retries", "3")
    secured.says("group", "update", "workers", "--no-consume")
    [shown] = secured.json("group", "show", "workers").values()
    assert shown == {"consume": False, "broadcast": True, "max_retries": 3, "retry_queues": 1}
    secured.says("group", "delete", "workers", "--yes")
    assert secured.fails("group", "show", "workers")[0] == 4
    secured.says("cluster", "settings", "set", secured.address(), "fileReservedTime=47")
    assert secured.json("cluster", "settings", "show", "broker-a", "fileReservedTime") == {"fileReservedTime": "47"}
