"""Super users in files, as Kubernetes mounts a Secret: their passwords change while the broker runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from raptormq.broker.config.config import BrokerConfig
from raptormq.errors import ConfigError
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.signing import Credentials
from raptormq.security import mounted_users
from raptormq.security.mounted_users import MountedUser, MountedUsers
from tests.broker.harness import connected, running
from tests.broker.security.test_access_control import ask, send

FIRST, SECOND = Credentials("keeper", "first-password"), Credentials("keeper", "second-password")


def mount(folder: Path, version: str, **files: str) -> Path:
    """Writes a Secret like the kubelet: a folder for each version, and one link that is replaced."""
    data = folder / f"..{version}"
    data.mkdir(parents=True)
    for name, text in files.items():
        (data / name).write_text(f"{text}\n")
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(Path("..data") / name)
    turned = folder / "..data_tmp"
    turned.symlink_to(data.name)
    turned.replace(folder / "..data")
    return folder


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker checks the files for every request."""
    monkeypatch.setattr(mounted_users, "CHECK_S", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_password_is_replaced_without_a_refusal(tmp_path: Path) -> None:
    secret = mount(tmp_path / "secret", "1", username="keeper", password="first-password")
    settings = {"authenticationEnabled": "true", "authorizationEnabled": "true", "superUserPaths": str(secret)}
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        assert (await send(peer, FIRST))[0] == 0
        assert await send(peer, SECOND) == (16, "check signature failed.")
        mount(secret, "2", username="keeper", password="first-password", otherPassword="second-password")
        assert [(await send(peer, who))[0] for who in (FIRST, SECOND)] == [0, 0]
        mount(secret, "3", username="keeper", password="second-password")
        (secret / "otherPassword").unlink()
        assert [(await send(peer, who))[0] for who in (FIRST, SECOND)] == [16, 0]


@pytest.mark.usefixtures("at_once")
async def test_no_request_changes_a_user_in_files(tmp_path: Path) -> None:
    secret = mount(tmp_path / "secret", "1", username="keeper", password="first-password")
    settings = {"authenticationEnabled": "true", "superUserPaths": str(secret)}
    refused = (16, "User:keeper is defined by files of this server (superUserPaths); change the files")
    body = json.dumps({"password": "other", "userType": "Super"}).encode()
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        changes = [(RequestCode.AUTH_UPDATE_USER, refused), (RequestCode.AUTH_DELETE_USER, refused)]
        for code, wanted in [*changes, (RequestCode.AUTH_CREATE_USER, (16, "The user is existed"))]:
            answer = await ask(peer, FIRST, code, {"username": "keeper"}, body)
            assert (answer.code, answer.remark) == wanted
        listed = await ask(peer, FIRST, RequestCode.AUTH_LIST_USER)
        assert [user["username"] for user in json.loads(listed.body)] == ["keeper"]
    assert "first-password" not in "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*.json") if secret not in path.parents
    )


async def test_files_count_before_a_table_that_has_another_password(tmp_path: Path) -> None:
    """The store of an earlier cluster, whose Secret is deleted, has the user with the old password."""
    before = {"authenticationEnabled": "true", "initAuthenticationUser": '{"username":"keeper","password":"ancient"}'}
    async with running(tmp_path, before) as broker, connected(broker) as peer:
        assert (await send(peer, Credentials("keeper", "ancient")))[0] == 0
    secret = mount(tmp_path / "secret", "1", username="keeper", password="first-password")
    now = {"authenticationEnabled": "true", "superUserPaths": str(secret)}
    async with running(tmp_path, now) as broker, connected(broker) as peer:
        assert (await send(peer, Credentials("keeper", "ancient")))[0] == 16
        assert (await send(peer, FIRST))[0] == 0


@pytest.mark.usefixtures("at_once")
async def test_a_broker_signs_its_registration_with_the_password_of_the_file(tmp_path: Path, free_port: int) -> None:
    secret = mount(tmp_path / "secret", "1", username="keeper", password="first-password")
    pairs = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "innerClientCredentialsPath": str(secret),
    }
    own = {"bindAddress": "127.0.0.1", "listenPort": str(free_port), "kvConfigPath": str(tmp_path / "kv.json")}
    server = NameServer(NameServerConfig.from_pairs(pairs | own | {"authConfigPath": str(tmp_path / "auth")}))
    await server.start()
    try:
        async with running(tmp_path, pairs | {"namesrvAddr": server.address}) as broker:
            await server.wait_for_broker(broker.address)
    finally:
        await server.stop()


@pytest.mark.usefixtures("at_once")
def test_files_that_cannot_be_used_leave_the_user_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = mount(tmp_path / "secret", "1", username="keeper", password="first-password")
    mounted = MountedUser(folder)
    mount(folder, "2", username="keeper", password="")
    assert [mounted.user.password, mounted.credentials().secret_key] == ["first-password"] * 2
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot update user keeper: {folder / 'password'} must have 1 to 4096 bytes of text"
    ]
    shutil.rmtree(folder)
    assert mounted.user.password == "first-password"
    mount(folder, "3", username="keeper", password="second-password")
    assert mounted.user.password == "second-password"


def test_folders_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*username: No such file"):
        MountedUsers([tmp_path])
    folders = [mount(tmp_path / name, "1", username="keeper", password=name) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="define the same user"):
        MountedUsers(folders)
    both = {
        "innerClientCredentialsPath": str(tmp_path),
        "innerClientAuthenticationCredentials": '{"accessKey":"a","secretKey":"b"}',
    }
    with pytest.raises(ConfigError, match="not both"):
        BrokerConfig.from_pairs(both)
