"""Each request to a name server needs exactly what docs/name-server.md says; the table here is written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raptormq.namesrv.service import NameServer
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.namesrv.test_access_control import ALICE, BROKER, INNER, ROOT, ask, make_alice, register, secured
from tests.namesrv.test_service import Peer, config_for, registration_body, serving

ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
KEY = {"namespace": "n", "key": "k", "value": "v"}
ACL = {
    "subject": "User:alice",
    "policies": [{"entries": [{"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"}]}],
}
USER = {"username": "bob"}

Row = tuple[int, dict[str, str], bytes, str, tuple[str, ...]]
"""Code, fields, body, the resource that it needs, and any of which actions on it."""

ROWS: list[Row] = [
    (100, KEY, b"", "Cluster:*", ("Update",)),
    (101, KEY, b"", "Cluster:*", ("Get",)),
    (102, KEY, b"", "Cluster:*", ("Update",)),
    (103, BROKER, registration_body(("t", "u")), "Cluster:c", ("Update",)),
    (104, BROKER, b"", "Cluster:c", ("Update",)),
    (105, {"topic": "t"}, b"", "Topic:t", ("Pub", "Sub", "Get")),
    (105, {"topic": "%RETRY%g"}, b"", "Group:g", ("Sub", "Get")),
    (106, {}, b"", "Cluster:*", ("Get",)),
    (205, {"brokerName": "broker-a"}, b"", "Cluster:c", ("Update",)),
    (205, {"brokerName": "nobody"}, b"", "Cluster:*", ("Update",)),
    (206, {}, b"", "Cluster:*", ("Get",)),
    (216, {"topic": "t"}, b"", "Topic:t", ("Delete",)),
    (216, {"topic": "t", "clusterName": "c"}, b"", "Topic:t", ("Delete",)),
    (216, {"topic": "%RETRY%g"}, b"", "Group:g", ("Delete",)),
    (217, {"topic": "new"}, b"", "Cluster:*", ("Update",)),
    (219, KEY, b"", "Cluster:*", ("Get",)),
    (224, {"cluster": "c"}, b"", "Cluster:c", ("Get",)),
    (304, {}, b"", "Cluster:*", ("Get",)),
    (311, {}, b"", "Cluster:*", ("Get",)),
    (312, {}, b"", "Cluster:*", ("Get",)),
    (313, {}, b"", "Cluster:*", ("Get",)),
    (318, {}, b"orderMessageEnable=true", "Cluster:*", ("Update",)),
    (319, {}, b"", "Cluster:*", ("Get",)),
    (322, BROKER, b"", "Cluster:c", ("Get",)),
    (327, {"brokerName": "broker-a"}, b"", "Cluster:c", ("Update",)),
    (901, {"clusterName": "c", "brokerName": "broker-a"}, b"", "Cluster:c", ("Get",)),
    (904, BROKER, b"", "Cluster:c", ("Update",)),
    (3001, USER, b'{"password": "x"}', "Cluster:*", ("Update",)),
    (3002, USER, b'{"password": "y"}', "Cluster:*", ("Update",)),
    (3003, USER, b"", "Cluster:*", ("Update",)),
    (3004, USER, b"", "Cluster:*", ("Get",)),
    (3005, {}, b"", "Cluster:*", ("Get",)),
    (3006, {"subject": "User:alice"}, json.dumps(ACL).encode(), "Cluster:*", ("Update",)),
    (3007, {"subject": "User:alice"}, json.dumps(ACL).encode(), "Cluster:*", ("Update",)),
    (3008, {"subject": "User:alice"}, b"", "Cluster:*", ("Update",)),
    (3009, {"subject": "User:alice"}, b"", "Cluster:*", ("Get",)),
    (3010, {}, b"", "Cluster:*", ("Get",)),
    (9999, {}, b"", "Cluster:*", ("Update",)),
]
OTHERS = ("Cluster:other", "Topic:other", "Group:other", "Topic:t", "Group:g", "Cluster:c")


async def is_let_in(peer: Peer, row: Row, rights: dict[str, tuple[str, ...]]) -> bool:
    """Whether a user with these rights and no others gets past the gate."""
    code, fields, body, _, _ = row
    await ask(peer, ROOT, RequestCode.AUTH_DELETE_ACL, subject="User:alice")
    for resource, actions in rights.items():
        entry = {"resource": resource, "actions": list(actions), "decision": "Allow"}
        acl = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]}
        made = await ask(peer, ROOT, RequestCode.AUTH_CREATE_ACL, json.dumps(acl).encode(), subject="User:alice")
        assert made.code == ResponseCode.SUCCESS
    answer = await ask(peer, ALICE, code, body, **fields)
    return "has no permission to access" not in (answer.remark or "")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[3]}")
async def test_a_request_needs_what_the_table_says(tmp_path: Path, row: Row) -> None:
    code, fields, body, resource, actions = row
    closed = secured(tmp_path, authenticationWhitelist="", authorizationWhitelist="")
    async with serving(tmp_path, **closed) as peer:
        await register(peer, INNER)
        await make_alice(peer)
        unsigned = await ask(peer, None, code, body, **fields)
        assert (unsigned.code, unsigned.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
        assert not await is_let_in(peer, row, {})
        wrong_actions = tuple(action for action in ACTIONS if action not in actions)
        elsewhere = dict.fromkeys((other for other in OTHERS if other != resource), ACTIONS)
        assert not await is_let_in(peer, row, {resource: wrong_actions} | elsewhere)
        for action in actions:
            await register(peer, INNER)  # which the one before may have removed
            assert await is_let_in(peer, row, {resource: (action,)})


async def test_every_request_has_a_row(tmp_path: Path) -> None:
    server = NameServer(config_for(tmp_path, **secured(tmp_path)))
    await server.start()
    served = set(server._router._handlers)
    await server.stop()
    assert {code for code, *_ in ROWS} - {9999} == served
