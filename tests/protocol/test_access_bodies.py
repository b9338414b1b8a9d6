"""Bodies about users and ACLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import BodyError
from raptormq.protocol.bodies.access import Acl, AclEntry, UserInfo
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.security.acls import AclTable, parse_policies

WORDS = st.text("abc", min_size=1, max_size=5)
ENTRIES = st.builds(
    AclEntry,
    WORDS.map("Topic:{}".format),
    st.sets(st.sampled_from(["Pub", "Sub", "Get"]), min_size=1).map(lambda actions: tuple(sorted(actions))),
    st.sampled_from([(), ("10.0.0.0/8",)]),
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(["Custom", "Default"]),
)


@given(st.lists(ENTRIES, min_size=1, max_size=5, unique_by=lambda entry: (entry.policy, entry.resource)))
def test_what_a_broker_stores_of_an_acl_is_what_was_sent(entries: list[AclEntry]) -> None:
    table = AclTable()
    table.put("User:alice", parse_policies(Acl("alice", tuple(entries)).to_dict()))
    [acl] = Acl.list_from_json(dumps(table.matching(None, None)))
    assert (acl.username, set(acl.entries)) == ("alice", set(entries))


def test_users_have_no_password() -> None:
    body = dumps([{"username": "alice", "password": "secret", "userType": "Super", "userStatus": "disable"}])
    [user] = UserInfo.list_from_json(body)
    assert user == UserInfo("alice", "Super", "disable")
    assert "secret" not in repr(user)


def test_absent_lists_and_values_have_defaults() -> None:
    assert UserInfo.list_from_json(b"") == []
    assert UserInfo.list_from_json(b'[{"username":"a","userType":null}]') == [UserInfo("a", "Normal", "enable")]
    assert Acl.list_from_json(b'[{"subject":"User:a","policies":null}]') == [Acl("a", ())]


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"nothing", b'[{"username":1}]', b"[{}]"])
def test_other_bodies_are_errors(body: bytes) -> None:
    with pytest.raises(BodyError):
        UserInfo.list_from_json(body)
    with pytest.raises(BodyError):
        Acl.list_from_json(body)


@pytest.mark.parametrize("policies", [b"7", b"[7]", b'[{"entries":[7]}]', b'[{"entries":[{"resource":7}]}]'])
def test_acls_of_other_shapes_are_errors(policies: bytes) -> None:
    with pytest.raises(BodyError):
        Acl.list_from_json(b'[{"subject":"User:a","policies":%b}]' % policies)
