"""Secrets of a server are only in its settings and its users, which only its own account can read."""

from __future__ import annotations

import asyncio
import json
import stat
import urllib.request
from collections.abc import Callable
from pathlib import Path

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import Credentials, sign
from tests.broker.harness import running
from tests.broker.security.rights import ROWS, USER
from tests.broker.security.test_access_control import SECURED
from tests.faults.broker_process import Client, process, serving
from tests.namesrv.rights import ROWS as NAME_SERVER_ROWS

ROOT = Credentials("root", "hush-of-root")
READER = Credentials("reader", "hush-of-reader")
SECRET = "hush-of-"
"""Common prefix of all secrets."""
SETTINGS = SECURED | {
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": '{"accessKey": "inner", "secretKey": "hush-of-broker"}',
    "tls.server.mode": "disabled",
    "tls.server.keyPassword": "hush-of-tls",
    "namesrvAddr": "127.0.0.1:1",
}
MISTAKES: tuple[tuple[RequestCode, dict[str, object], bytes], ...] = (
    (RequestCode.AUTH_CREATE_USER, {"username": "x"}, b'{"password":"hush-of-x"'),
    (RequestCode.AUTH_CREATE_USER, {"username": "root"}, b'{"password":"hush-of-x"}'),
    (RequestCode.AUTH_CREATE_USER, {}, b'{"password":"hush-of-x"}'),
    (RequestCode.AUTH_UPDATE_USER, {"username": "nobody"}, b'{"password":"hush-of-x"}'),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b'initAuthenticationUser={"username":"x","password":"hush-of-x"'),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b'initAuthenticationUser={"username":"x","secret":"hush-of-x"}'),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b'initAuthenticationUser={"username":"x","password":"hush-of-x\\ud800"}'),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b'initAuthenticationUser={"username":"x","password":"hush-of-x\\uxx"}'),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b'initAuthenticationUsr={"username":"x","password":"hush-of-x"}'),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b"tls.server.keyPassword=hush-of-x"),
)
"""Refused requests that contain a secret."""


def text_of(answer: RemotingCommand) -> str:
    return f"{answer.ext_fields} {answer.remark} {answer.body.decode('utf-8', 'replace')}"


def holders(folder: Path) -> set[Path]:
    """Return the files that contain a secret."""
    return {path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def ask(client: Client, who: Credentials, code: int, fields: dict[str, object], body: bytes) -> RemotingCommand:
    command = RemotingCommand(code, {name: str(value) for name, value in fields.items()}, body)
    sign(command, who)
    return await client.call(code, command.ext_fields, body)


async def add_reader(client: Client) -> None:
    """Create a user with all read permissions."""
    create, grant = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_CREATE_ACL
    entry = {"resource": "*", "actions": ["Get", "List"], "decision": "Allow"}
    acl = json.dumps({"policies": [{"entries": [entry]}]}).encode()
    for username in (USER, "reader"):
        password = json.dumps({"password": f"{SECRET}{username}"}).encode()
        assert (await ask(client, ROOT, create, {"username": username}, password)).code == ResponseCode.SUCCESS
    assert (await ask(client, ROOT, grant, {"subject": "User:reader"}, acl)).code == ResponseCode.SUCCESS


async def test_no_secret_leaves_a_broker(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    port, metrics_port = free_ports(2)
    log = tmp_path / "log"
    settings = SETTINGS | {"metricsPort": str(metrics_port), "metricsHost": "127.0.0.1"}
    async with process(tmp_path, port, settings, log=log, level="debug") as server:
        client = Client(port)
        await add_reader(client)
        seen = {}
        for row in ROWS:
            if "Get" in " ".join(row.needs.values()):
                seen[row.about] = await ask(client, READER, row.code, dict(row.fields), row.body)
        assert {answer.code for answer in seen.values()} > {ResponseCode.SUCCESS}
        assert [about for about, answer in seen.items() if SECRET in text_of(answer)] == []
        users = {user["username"]: user for user in json.loads(seen["users"].body)}
        assert {name: user["password"] for name, user in users.items()} == dict.fromkeys(
            (USER, "inner", "reader", "root"), ""
        )
        for code, fields, body in MISTAKES:
            refused = await ask(client, ROOT, code, fields, body)
            assert refused.code != ResponseCode.SUCCESS
            assert SECRET not in text_of(refused), body
        shown = await ask(client, ROOT, RequestCode.AUTH_LIST_USER, {}, b"")
        assert shown.body.decode().count(SECRET) == len(users)  # a super user copies them to another cluster
        await client.close()
        page = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{metrics_port}/metrics")
        with page:
            assert SECRET.encode() not in page.read()
        for name in ("cmdline", "comm"):
            assert SECRET.encode() not in Path(f"/proc/{server.pid}/{name}").read_bytes()
        server.terminate()
        output, _ = await asyncio.to_thread(server.communicate)
        assert SECRET.encode() not in output
    assert log.stat().st_size > 0
    users_file = tmp_path / "store" / "config" / "users.json"
    assert holders(tmp_path) == {tmp_path / "broker.conf", users_file, users_file.with_name("users.json.bak")}
    assert {mode_of(path) for path in holders(tmp_path) if path.name != "broker.conf"} == {0o600}


async def test_users_that_somebody_has_copied_back_are_private_again(tmp_path: Path) -> None:
    async with running(tmp_path, SETTINGS):
        pass
    files = [tmp_path / "config" / name for name in ("users.json", "users.json.bak")]
    for file in files:
        file.write_bytes(files[0].read_bytes())
        file.chmod(0o644)
    async with running(tmp_path, SETTINGS):
        assert [mode_of(file) for file in files] == [0o600, 0o600]


async def test_no_secret_leaves_a_name_server(tmp_path: Path, free_port: int) -> None:
    pairs = SETTINGS | {
        "listenPort": str(free_port),
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(tmp_path / "kv.json"),
        "authConfigPath": str(tmp_path / "auth"),
    }
    config, log = tmp_path / "namesrv.conf", tmp_path / "log"
    config.write_text("".join(f"{key}={value}\n" for key, value in pairs.items() if key != "namesrvAddr"))
    async with serving(["namesrv", "-c", str(config), "--log-level", "debug"], log=log) as server:
        client = Client(free_port)
        await add_reader(client)
        for row in NAME_SERVER_ROWS:
            if "Get" in " ".join(row.needs.values()):
                answer = await ask(client, READER, row.code, dict(row.fields), row.body)
                assert SECRET not in text_of(answer), str(row)
        for code, fields, body in MISTAKES:
            is_setting = code == RequestCode.UPDATE_BROKER_CONFIG
            asked = RequestCode.UPDATE_NAMESRV_CONFIG if is_setting else code
            refused = await ask(client, ROOT, asked, fields, body)
            assert refused.code != ResponseCode.SUCCESS
            assert SECRET not in text_of(refused), body
        changed = await ask(client, ROOT, RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true")
        assert changed.code == ResponseCode.SUCCESS, changed.remark
        shown = await ask(client, ROOT, RequestCode.AUTH_LIST_USER, {}, b"")
        assert SECRET in shown.body.decode()
        await client.close()
        server.terminate()
        output, _ = await asyncio.to_thread(server.communicate)
        assert SECRET.encode() not in output
    users_file = tmp_path / "auth" / "users.json"
    assert holders(tmp_path) == {config, users_file, users_file.with_name("users.json.bak")}
    assert {mode_of(path) for path in holders(tmp_path) if path != config} == {0o600}
