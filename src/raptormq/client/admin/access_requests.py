"""Validation and encoding of requests about users and ACLs. No I/O.

Values are validated here because servers reject invalid ones with the code for a missing permission. `admin.client`
sends the requests.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from raptormq.client.settings import check_setting
from raptormq.errors import ConfigError
from raptormq.protocol.bodies.access import USER_SUBJECT, Acl, AclEntry
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from raptormq.security.acls import POLICY_TYPES
from raptormq.security.resources import ACTIONS, parse_resource

USER_TYPES = ("Normal", "Super")
USER_STATUSES = ("enable", "disable")
DECISIONS = ("Allow", "Deny")
GRANTABLE_ACTIONS = tuple(action for action in ACTIONS if action not in ("Unknown", "Any"))
"""Actions that an ACL entry may allow or deny."""


def create_user_request(username: str, password: str, user_type: str, status: str) -> RemotingCommand:
    """Return the request that creates a user.

    Raises:
        ConfigError: a value is invalid.
    """
    return _user_request(RequestCode.AUTH_CREATE_USER, username, password, user_type, status)


def update_user_request(
    username: str, password: str | None, user_type: str | None, status: str | None
) -> RemotingCommand:
    """Return the request that changes a user. None keeps a value.

    Raises:
        ConfigError: a value is invalid, or nothing is to be changed.
    """
    if password is None and user_type is None and status is None:
        raise ConfigError(f"nothing to change for user {username}: give a password, a type or a status")
    return _user_request(RequestCode.AUTH_UPDATE_USER, username, password, user_type, status)


def delete_user_request(username: str) -> RemotingCommand:
    """Return the request that deletes a user. Raises `ConfigError` for an invalid name."""
    return request(RequestCode.AUTH_DELETE_USER, UserRequestHeader(checked_username(username)))


def list_users_request(text: str) -> RemotingCommand:
    """Return the request for the users whose name contains `text`."""
    check_setting("text", text, str)
    return request(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(text or None))


def put_acl_request(username: str, entries: Sequence[AclEntry]) -> RemotingCommand:
    """Return the request that adds or replaces entries of an ACL.

    Raises:
        ConfigError: a value is invalid, or there is no entry.
    """
    if not entries:
        raise ConfigError("an ACL must have at least one entry")
    for entry in entries:
        _check_entry(entry)
    acl = Acl(checked_username(username), tuple(entries))
    return request(RequestCode.AUTH_UPDATE_ACL, AclRequestHeader(acl.subject), body=dumps(acl.to_dict()))


def delete_acl_request(username: str, resource: str | None, policy: str | None) -> RemotingCommand:
    """Return the request that deletes an ACL, or its entry for one resource.

    Raises:
        ConfigError: a value is invalid.
    """
    if resource is not None:
        _check_resource(resource)
    if policy is not None:
        if resource is None:
            raise ConfigError("a policy must be given together with a resource")
        _check_word("policy", policy, POLICY_TYPES)
    subject = USER_SUBJECT + checked_username(username)
    return request(RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject, policy, resource))


def list_acls_request(text: str) -> RemotingCommand:
    """Return the request for the ACLs of users whose name contains `text`."""
    check_setting("text", text, str)
    return request(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader(text or None))


def checked_username(username: str) -> str:
    """Return `username`. Raises `ConfigError` for a blank name."""
    check_setting("username", username, str)
    if not username.strip():
        raise ConfigError("the name of a user must not be blank")
    return username


def _user_request(
    code: RequestCode, username: str, password: str | None, user_type: str | None, status: str | None
) -> RemotingCommand:
    check_setting("password", password, str | None, shown=False)
    if password is not None and not password.strip():
        raise ConfigError("the password of a user must not be blank")
    _check_word("user_type", user_type, (*USER_TYPES, None))
    _check_word("status", status, (*USER_STATUSES, None))
    given = {"username": username, "password": password, "userType": user_type, "userStatus": status}
    body = dumps({name: value for name, value in given.items() if value is not None})
    return request(code, UserRequestHeader(checked_username(username)), body=body)


def _check_entry(entry: AclEntry) -> None:
    check_setting("entries", entry, AclEntry)
    _check_resource(entry.resource)
    if not entry.actions:
        raise ConfigError(f"the entry for {entry.resource} has no action")
    for action in entry.actions:
        _check_word("action", action, GRANTABLE_ACTIONS)
    for address in entry.source_ips:
        try:
            ipaddress.ip_network(address, strict=False)
        except ValueError:
            raise ConfigError(f"{address!r} is not an IP address or a network such as 10.0.0.0/8") from None
    _check_word("decision", entry.decision, DECISIONS)
    _check_word("policy", entry.policy, POLICY_TYPES)


def _check_resource(resource: str) -> None:
    check_setting("resource", resource, str)
    parsed = parse_resource(resource)
    if parsed is None or parsed.key != resource or not (parsed.name or resource.endswith("*")):
        raise ConfigError(
            f"{resource!r} is not a resource: expected *, or a name or prefix* of Topic:, Group: or Cluster:, such as"
            " Topic:orders*"
        )


def _check_word(name: str, value: str | None, allowed: Sequence[str | None]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(filter(None, allowed))}, not {value!r}")
