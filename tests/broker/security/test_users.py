"""Users of a broker: who creates super users, and who sees passwords."""

from __future__ import annotations

import json
from pathlib import Path

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.signing import Credentials
from tests.broker.harness import Peer, assembly_of, connected, running
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, allow, ask, create_alice


async def test_only_a_super_user_makes_super_users(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Cluster:*", ["All"])
        body = json.dumps({"password": "x", "userType": "Super"}).encode()
        answer = await ask(peer, ALICE, RequestCode.AUTH_CREATE_USER, {"username": "bob"}, body)
        assert (answer.code, answer.remark) == (1, "The super user can only be create by super user")
        answer = await ask(peer, ALICE, RequestCode.AUTH_DELETE_USER, {"username": "root"})
        assert (answer.code, answer.remark) == (16, "The super user can only be update by super user")
        answer = await ask(peer, ALICE, RequestCode.AUTH_UPDATE_USER, {"username": "nobody"}, b'{"password":"y"}')
        assert (answer.code, answer.remark) == (16, "The user is not exist")


async def passwords(peer: Peer, who: Credentials | None, **fields: object) -> dict[str, str]:
    """Return alice and root as 3004 and 3005 show them."""
    listed = await ask(peer, who, RequestCode.AUTH_LIST_USER, fields)
    assert listed.code == ResponseCode.SUCCESS, listed.remark
    shown = {user["username"]: user["password"] for user in json.loads(listed.body)}
    for name, password in shown.items():
        one = await ask(peer, who, RequestCode.AUTH_GET_USER, fields | {"username": name})
        assert json.loads(one.body)["password"] == password
    return shown


NO_PASSWORDS = {"alice": "", "root": ""}
ALL_PASSWORDS = {"alice": ALICE.secret_key, "root": ROOT.secret_key}


async def test_passwords_are_for_super_users(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Cluster:*", ["All"])
        assert await passwords(peer, ALICE) == NO_PASSWORDS
        assert await passwords(peer, ROOT) == ALL_PASSWORDS
    unproved = {"authenticationEnabled": "true", "authenticationWhitelist": "3001,3004,3005"}
    for settings in ({}, unproved):  # any client can claim to be root there
        async with running(tmp_path, settings) as broker, connected(broker) as peer:
            for who, fields in ((None, {}), (None, {"AccessKey": "root"}), (Credentials("root", "guessed"), {})):
                assert await passwords(peer, who, **fields) == NO_PASSWORDS


async def test_a_code_that_needs_no_signature_makes_no_super_user(tmp_path: Path) -> None:
    settings = SECURED | {"authorizationEnabled": "false", "authenticationWhitelist": "3001"}
    body = json.dumps({"password": "x", "userType": "Super"}).encode()
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        for claim in ({}, {"AccessKey": "root"}):
            fields: dict[str, object] = {"username": "bob", **claim}
            answer = await ask(peer, None, RequestCode.AUTH_CREATE_USER, fields, body)
            assert (answer.code, answer.remark) == (1, "The super user can only be create by super user")


async def test_nobody_makes_himself_a_super_user_by_settings(tmp_path: Path) -> None:
    keys = ("authenticationEnabled", "authorizationEnabled", "authenticationWhitelist", "authorizationWhitelist")
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Cluster:*", ["All"])
        lines = {key: "false" if key.endswith("Enabled") else "3001" for key in keys} | {
            "initAuthenticationUser": '{"username":"alice2","password":"x"}',
            "innerClientAuthenticationCredentials": '{"accessKey":"alice2","secretKey":"x"}',
        }
        for key, value in lines.items():
            body = f"maxMessageSize=1M\n{key}={value}\n".encode()
            for who in (ALICE, ROOT):
                refused = await ask(peer, who, RequestCode.UPDATE_BROKER_CONFIG, body=body)
                assert (refused.code, refused.remark) == (16, "Can not update config in black list."), key
        assert (await ask(peer, ALICE, RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=2M")).code == 0


async def test_permissions_of_a_deleted_user_are_gone_before_the_user(tmp_path: Path) -> None:
    """At any instant of the deletion a crash may keep what was changed until then."""
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Pub"])
        tables = assembly_of(broker).tables.security
        assert tables is not None
        kept: list[tuple[bool, bool]] = []

        def changed() -> None:
            kept.append((tables.users.get("alice") is not None, tables.acls.shown("User:alice") is not None))

        tables.users.on_change(changed)
        tables.acls.on_change(changed)
        assert (await ask(peer, ROOT, RequestCode.AUTH_DELETE_USER, {"username": "alice"})).code == 0
        assert kept == [(True, False), (False, False)]
        saved = (tmp_path / "config/acls.json").read_text()
        assert "alice" not in saved
