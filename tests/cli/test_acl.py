"""`raptormq acl` against a broker with access control."""

from __future__ import annotations

import pytest

from tests.cli.secured import Secured
from tests.names import unique

PASSWORD = "secret-of-a-user"


@pytest.fixture
def user(secured: Secured) -> str:
    name = unique("user")
    secured.create(name, PASSWORD)
    return name


def test_an_entry_allows_what_it_names_and_nothing_else(secured: Secured, user: str) -> None:
    topic = unique("orders")
    secured.says("topic", "create", topic)
    produce = ["produce", topic]
    denied, _ = secured.fails(*produce, user=user, password=PASSWORD, stdin=b"1\n")
    assert denied == 5
    said = secured.says("acl", "create", user, "--resource", f"Topic:{topic}", "--action", "pub")
    assert said == f"user {user} has an entry for Topic:{topic}\n"
    assert secured(*produce, user=user, password=PASSWORD, stdin=b"1\n").returncode == 0
    assert secured("topic", "delete", topic, "--yes", user=user, password=PASSWORD).returncode == 5
    secured.says("acl", "update", user, "--resource", f"Topic:{topic}", "--decision", "deny")
    assert secured.fails(*produce, user=user, password=PASSWORD, stdin=b"1\n")[0] == 5
    [entry] = secured.json("acl", "show", user)
    assert entry == {
        "user": user,
        "policy": "custom",
        "resource": f"Topic:{topic}",
        "actions": ["pub"],
        "source_ips": [],
        "decision": "deny",
        "servers": [secured.address()],
    }


def test_entries_are_listed_changed_and_deleted_one_by_one(secured: Secured, user: str) -> None:
    entry = ["acl", "create", user, "--resource"]
    secured.says(*entry, "Topic:a*", "--action", "pub", "--action", "sub", "--source-ip", "10.0.0.0/8")
    secured.says(*entry, "Group:g", "--action", "all", "--decision", "deny", "--policy", "default")
    secured.says("acl", "update", user, "--resource", "Topic:a*", "--action", "get", "--source-ip", "::1")
    rows = {line.split()[2]: line.split() for line in secured.says("acl", "show", user).splitlines() if user in line}
    assert rows["Topic:a*"] == [user, "custom", "Topic:a*", "get", "::1", "allow", "all"]
    assert rows["Group:g"] == [user, "default", "Group:g", "all", "-", "deny", "all"]
    listed = secured.json("acl", "list", "--user", user, "--resource", "Group:")
    assert [each["resource"] for each in listed] == ["Group:g"]
    code, line = secured.fails("acl", "delete", user, "--resource", "Group:g", "--yes")
    assert (code, "has no entry for Group:g" in line) == (4, True)  # the entry has the policy Default
    secured.says("acl", "delete", user, "--resource", "Group:g", "--policy", "default", "--yes")
    assert [each["resource"] for each in secured.json("acl", "show", user)] == ["Topic:a*"]
    code, line = secured.fails("acl", "delete", user)
    assert (code, "confirm with --yes" in line) == (2, True)
    assert secured.says("acl", "delete", user, "--yes") == f"all permissions of user {user} are deleted\n"
    assert secured.fails("acl", "show", user)[0] == 4


def test_what_exists_or_does_not_is_told_apart(secured: Secured, user: str) -> None:
    entry = ["--resource", "Topic:t", "--action", "pub"]
    assert secured.fails("acl", "update", user, *entry)[0] == 4
    secured.says("acl", "create", user, *entry)
    code, line = secured.fails("acl", "create", user, *entry)
    assert (code, "'raptormq acl update' changes it" in line) == (2, True)
    for command in (["create", "nobody", *entry], ["delete", "nobody", "--yes"], ["show", "nobody"]):
        assert secured.fails("acl", *command)[0] == 4, command


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--resource", "orders", "--action", "pub"], "'orders' is not a resource"),
        (["--resource", "Topic:", "--action", "pub"], "'Topic:' is not a resource"),
        (["--resource", "Queue:q", "--action", "pub"], "'Queue:q' is not a resource"),
        (["--resource", "Topic:t", "--action", "write"], "'write' is not one of"),
        (["--resource", "Topic:t"], "--action"),
        (["--resource", "Topic:t", "--action", "pub", "--source-ip", "10.0.0"], "'10.0.0' is not an IP address"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    secured: Secured, user: str, options: list[str], expected: str
) -> None:
    code, line = secured.fails("acl", "create", user, *options)
    assert (code, expected in line) == (2, True), line
    assert secured.fails("acl", "show", user)[0] == 4
