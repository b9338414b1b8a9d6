"""Tables of a broker that are empty, truncated or invalid: the broker uses the backup with a warning, or refuses to
start with one line that names the remedy. It never starts with an empty table without notice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raptormq.errors import StoreDamaged
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.signing import Credentials
from tests.broker.harness import bodies, connected, running
from tests.broker.security.test_access_control import SECURED, ask
from tests.faults.test_bad_folders import complaint, start

ROOT = Credentials("root", "root-secret")
CHANGED = Credentials("root", "changed-secret")
TABLES = {
    "topics.json": "topics are recreated from their queues",
    "subscriptionGroup.json": "groups have default settings",
    "consumerOffset.json": "all consumer groups start as new groups",
    "delayOffset.json": "repeats deliveries",
    "messageRequestMode.json": "all groups have mode PULL",
    "deletedTopics.json": "restores deleted topics",
    "queueConversions.json": "has to be started again",
    "users.json": "only the users of the settings exist",
    "acls.json": "only super users",
}
DAMAGE = {
    "empty": b"",
    "NUL bytes": bytes(4096),
    "cut": b'{"topicConfigTable":{"t":',
    "a list": b"[]",
    "another": b"{}",
}


@pytest.mark.parametrize("name", TABLES)
def test_an_emptied_table_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    root = tmp_path / "store"
    table = root / "config" / name
    table.parent.mkdir(parents=True)
    table.write_bytes(b"")
    line = complaint(start(tmp_path, root))
    assert f"{table} is damaged (it is empty), and there is no backup: replace {table} with an undamaged copy" in line
    assert f"or remove {table}" in line
    assert TABLES[name] in line
    assert table.read_bytes() == b""


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_table_is_refused_whatever_is_in_it(tmp_path: Path, name: str, damage: bytes) -> None:
    table = tmp_path / "config" / name
    table.parent.mkdir(parents=True)
    for each in (table, table.with_name(f"{name}.bak"), table.with_suffix(".made")):
        each.write_bytes(damage)
    with pytest.raises(StoreDamaged, match=rf"{name} is damaged .*, and its backup is damaged .*{TABLES[name]}"):
        async with running(tmp_path):
            pass


@pytest.mark.parametrize("contents", [b"", bytes(20)])
def test_a_cut_file_of_timers_is_refused_with_what_to_do(tmp_path: Path, contents: bytes) -> None:
    file = tmp_path / "store" / "config" / "timercheck"
    file.parent.mkdir(parents=True)
    file.write_bytes(contents)
    line = complaint(start(tmp_path, tmp_path / "store"))
    assert (
        f"{file} is damaged: it has {len(contents)} bytes of 4096; replace it with an undamaged copy, or remove it"
        in line
    )


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_progress_of_groups_is_that_of_the_backup_with_a_warning(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    commit = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    for offset in (1, 2):
        async with running(tmp_path) as broker, connected(broker) as peer:
            await peer.send("t", b"x")
            answer = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": offset})
            assert answer.code == 0
    table = tmp_path / "config" / "consumerOffset.json"
    table.write_bytes(damage)
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, commit)
        assert answer.ext_fields["offset"] == "1"
        assert bodies(await peer.pull("t", 0)) == [b"x", b"x"]
    assert f"{table} is damaged" in caplog.text
    assert f"using its backup {table}.bak, which may be older" in caplog.text


async def test_an_empty_checkpoint_is_told_of_and_costs_a_walk_through_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
    assert "is damaged" not in caplog.text
    (tmp_path / "checkpoint").write_bytes(b"")
    (tmp_path / "abort").touch()
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 0)) == [b"x"]
    assert f"{tmp_path / 'checkpoint'} is damaged (0 bytes): the whole log is scanned" in caplog.text


async def change_password(root: Path) -> None:
    async with running(root, SECURED) as broker, connected(broker) as peer:
        body = json.dumps({"password": CHANGED.secret_key}).encode()
        answer = await ask(peer, ROOT, RequestCode.AUTH_UPDATE_USER, {"username": "root"}, body)
        assert answer.code == 0, answer.remark


async def accepts(root: Path, who: Credentials) -> bool:
    async with running(root, SECURED) as broker, connected(broker) as peer:
        return (await ask(peer, who, RequestCode.AUTH_LIST_USER)).code == 0


async def test_a_lost_table_of_users_does_not_bring_the_first_password_back(tmp_path: Path) -> None:
    await change_password(tmp_path)
    assert not await accepts(tmp_path, ROOT)
    assert await accepts(tmp_path, CHANGED)
    users, marker = tmp_path / "config" / "users.json", tmp_path / "config" / "users.made"
    backup, sound = users.with_name("users.json.bak"), users.read_bytes()
    for contents in (
        b"",
        bytes(len(sound)),
        sound[:20],
        b'{"users":[{"username":"root"}]}',
        b'{"users":["root"]}',
        None,
    ):
        backup.unlink(missing_ok=True)
        if contents is None:
            users.unlink()
        else:
            users.write_bytes(contents)
        with pytest.raises(
            StoreDamaged, match=r"users\.json is (missing|damaged .*), and there is no backup: .*initial pass"
        ):
            await accepts(tmp_path, ROOT)
    users.write_bytes(sound)
    assert await accepts(tmp_path, CHANGED)
    for each in (users, backup, marker):  # the remedy in the error, to start without the table
        each.unlink(missing_ok=True)
    assert await accepts(tmp_path, ROOT)


@pytest.mark.parametrize("contents", [b"", None])
async def test_the_backup_of_the_users_has_the_changed_password(
    tmp_path: Path, contents: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    await change_password(tmp_path)
    users = tmp_path / "config" / "users.json"
    assert users.with_name("users.json.bak").stat().st_mode & 0o777 == 0o600
    for who, expected in ((ROOT, False), (CHANGED, True)):
        users.unlink()
        if contents is not None:
            users.write_bytes(contents)
        assert await accepts(tmp_path, who) is expected
        users.write_bytes(users.with_name("users.json.bak").read_bytes())
    assert f"{users}.bak, which may be older" in caplog.text


async def test_an_older_backup_of_the_users_from_an_earlier_version_is_not_used(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED):
        pass
    users, marker = tmp_path / "config" / "users.json", tmp_path / "config" / "users.made"
    first = users.read_bytes()
    await change_password(tmp_path)
    users.with_name("users.json.bak").write_bytes(first)
    marker.unlink()
    users.write_bytes(b"")
    with pytest.raises(StoreDamaged, match=r"its backup may be older: replace "):
        await accepts(tmp_path, ROOT)


async def test_users_of_an_earlier_version_are_missed_from_their_first_start_on(tmp_path: Path) -> None:
    await change_password(tmp_path)
    users, marker = tmp_path / "config" / "users.json", tmp_path / "config" / "users.made"
    marker.unlink()
    assert await accepts(tmp_path, CHANGED)
    assert marker.exists()
    users.unlink()
    users.with_name("users.json.bak").unlink()
    with pytest.raises(StoreDamaged, match=r"users\.json is missing"):
        await accepts(tmp_path, ROOT)


async def test_lost_acls_are_missed(tmp_path: Path) -> None:
    entry = {"resource": "Topic:t", "actions": ["Pub"], "decision": "Deny"}
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
        created = await ask(peer, ROOT, RequestCode.AUTH_CREATE_USER, {"username": "a"}, b'{"password":"p"}')
        assert created.code == 0
        assert (await ask(peer, ROOT, RequestCode.AUTH_CREATE_ACL, {"subject": "User:a"}, body)).code == 0
    for name in ("acls.json", "acls.json.bak"):
        (tmp_path / "config" / name).unlink()
    with pytest.raises(StoreDamaged, match=r"acls\.json is missing"):
        await accepts(tmp_path, ROOT)
