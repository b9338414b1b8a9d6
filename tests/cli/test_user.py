"""`raptormq user` against a broker with access control."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import AdminClient, ClientConfig, Credentials
from tests.cli.secured import ROOT, ROOT_PASSWORD, Secured
from tests.cli.test_secured_name_server import SIGNED, name_server_conf
from tests.names import unique

PASSWORD = "secret-of-a-user"


def test_a_user_is_created_signs_and_is_deleted(secured: Secured) -> None:
    name = unique("alice")
    assert secured.create(name, f"{PASSWORD}\n") == f"user {name} is created\n"
    [shown] = secured.json("user", "show", name)
    assert (shown["username"], shown["type"], shown["status"]) == (name, "normal", "enable")
    assert shown["servers"] == [secured.address()]
    # The user exists and has no permission yet.
    code, line = secured.fails("user", "list", user=name, password=PASSWORD)
    assert (code, "no matched policies" in line) == (5, True), line
    assert secured.says("user", "delete", name, "--yes") == f"user {name} is deleted\n"
    assert secured.fails("user", "show", name)[0] == 4


def test_users_are_listed_without_passwords(secured: Secured) -> None:
    name = unique("bob")
    secured.create(name, PASSWORD, "--type", "super")
    table = secured.says("user", "list")
    lines = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.strip()}
    assert lines[name] == ["super", "enable", "all"]
    assert lines[ROOT] == ["super", "enable", "all"]
    found = secured("user", "list", name, "-o", "json")
    assert [each["username"] for each in json.loads(found.stdout)] == [name]
    for secret in (PASSWORD, ROOT_PASSWORD):
        assert secret not in table + found.stdout.decode()


def test_password_type_and_status_change_on_their_own(secured: Secured, tmp_path: Path) -> None:
    name, file = unique("carol"), tmp_path / "secret"
    secured.create(name, PASSWORD, "--type", "super")
    file.write_text("another secret\n")
    said = secured.says("user", "update", name, "--password-file", str(file))
    assert said == f"user {name} is changed\n"
    assert secured("user", "list", user=name, password=PASSWORD).returncode == 5
    assert secured("user", "list", user=name, password="another secret").returncode == 0
    secured.says("user", "update", name, "--status", "disable")
    assert secured("user", "list", user=name, password="another secret").returncode == 5
    secured.says("user", "update", name, "--status", "enable", "--type", "normal")
    [shown] = secured.json("user", "show", name)
    assert (shown["type"], shown["status"]) == ("normal", "enable")


def test_what_exists_or_does_not_is_told_apart(secured: Secured) -> None:
    name = unique("dave")
    secured.create(name)
    code, line = secured.fails("user", "create", name, "--password-file", "-", stdin=b"x")
    assert (code, f"user {name} exists on {secured.address()}" in line) == (2, True)
    for words in (["update", "--status", "disable"], ["delete", "--yes"], ["show"]):
        command, *options = words
        code, line = secured.fails("user", command, unique("nobody"), *options)
        assert (code, "does not exist" in line) == (4, True), words


def test_a_deletion_is_confirmed(secured: Secured) -> None:
    name = unique("erin")
    secured.create(name)
    code, line = secured.fails("user", "delete", name)
    assert (code, "confirm with --yes" in line) == (2, True)
    assert secured.json("user", "show", name)


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        (["create", "NEW"], b"x", "give the password with --password-file FILE"),
        (["create", "NEW", "--password-file", "-"], b" \n", "1 to 4096 bytes"),
        (["create", "NEW", "--password-file", "-"], b"x" * 5000, "1 to 4096 bytes"),
        (["create", "NEW", "--password-file", "-"], b"\xff", "not UTF-8"),
        (["create", "NEW", "--password-file", "/does/not/exist"], b"", "cannot read the password file"),
        (["create", "NEW", "--password-file", "-", "--type", "admin"], b"x", "'normal', 'super'"),
        (["create", " ", "--password-file", "-"], b"x", "must not be blank"),
        (["update", "OLD"], b"", "nothing to change"),
        (["update", "OLD", "--ask-password", "--password-file", "-"], b"x", "mutually exclusive"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    secured: Secured, words: list[str], stdin: bytes, expected: str
) -> None:
    new, old = unique("new"), unique("old")
    secured.create(old)
    named = [{"NEW": new, "OLD": old}.get(word, word) for word in words]
    code, line = secured.fails("user", *named, stdin=stdin)
    assert (code, expected in line) == (2, True), line
    assert secured.fails("user", "show", new)[0] == 4


def test_a_name_server_has_users_of_its_own(
    serving: Callable[..., AbstractContextManager[Any]],
    raptormq: Callable[..., subprocess.CompletedProcess[bytes]],
    tmp_path: Path,
) -> None:
    with serving("namesrv", "-c", name_server_conf(tmp_path)) as server:
        address = server.address("namesrv")
        to = ["-n", address, "--server", address, *SIGNED]
        done = raptormq("user", "create", "frank", "--password-file", "-", *to, stdin=b"secret")
        assert (done.returncode, done.stdout) == (0, b"user frank is created\n"), done.stderr
        listed = json.loads(raptormq("user", "list", "-o", "json", *to).stdout)
        assert {each["username"] for each in listed} == {"frank", "inner"}
        unreachable = raptormq("user", "list", "-n", address, "--server", "127.0.0.1:1", *SIGNED)
        assert unreachable.returncode == 3


async def test_the_client_has_no_password(secured: Secured) -> None:
    config = ClientConfig(secured.name_servers, credentials=Credentials(ROOT, ROOT_PASSWORD))
    async with AdminClient(client_config=config) as admin:
        [users] = (await admin.users()).values()
    assert ROOT in {user.username for user in users}
    assert ROOT_PASSWORD not in repr(users)
