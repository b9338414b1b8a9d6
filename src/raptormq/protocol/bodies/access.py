"""Bodies about users (3001 to 3005) and their ACLs (3006 to 3010).

    user  {"username": "alice", "userType": "Normal", "userStatus": "enable", "password": "..."}
    ACL   {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [
           {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"}]}]}

The body of a list is an array; it is empty if nothing was found. Source: Apache RocketMQ ``UserInfo``, ``AclInfo``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import list_at, names_at, text_at
from raptormq.protocol.bodies.tolerant_json import loads

USER_SUBJECT = "User:"
"""Prefix of the subject of an ACL; the name of the user follows."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user of a server, without the password."""

    username: str
    type: str = "Normal"
    """Normal, or Super: a super user has all permissions."""
    status: str = "enable"
    """enable or disable."""

    @classmethod
    def list_from_json(cls, data: bytes) -> list[UserInfo]:
        """Decode the body of a list of users. Raises :class:`BodyError`."""
        return [
            cls(
                text_at(each, "username"),
                text_at(each, "userType", "Normal"),
                text_at(each, "userStatus", "enable"),
            )
            for each in _objects(data)
        ]


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Permission of a user for one resource."""

    resource: str
    """``Topic:orders``, ``Topic:orders*``, ``Group:*``, ``Cluster:*``, or ``*`` for everything."""
    actions: tuple[str, ...]
    """Pub, Sub, Create, Update, Delete, Get, List, or All."""
    source_ips: tuple[str, ...] = ()
    """Addresses and networks (``10.0.0.0/8``) of clients to which the entry applies; empty for all."""
    decision: str = "Allow"
    """Allow or Deny."""
    policy: str = "Custom"
    """Custom or Default; Default entries count only where no Custom entry matches."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the entry within a policy."""
        shown: dict[str, Any] = {"resource": self.resource, "actions": list(self.actions), "decision": self.decision}
        return shown | {"sourceIps": list(self.source_ips)} if self.source_ips else shown


@dataclass(frozen=True, slots=True)
class Acl:
    """The permissions of one user."""

    username: str
    entries: tuple[AclEntry, ...]

    @property
    def subject(self) -> str:
        """``User:`` and the name."""
        return USER_SUBJECT + self.username

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        policies: dict[str, list[dict[str, Any]]] = {}
        for entry in self.entries:
            policies.setdefault(entry.policy, []).append(entry.to_dict())
        listed = [{"policyType": policy, "entries": entries} for policy, entries in policies.items()]
        return {"subject": self.subject, "policies": listed}

    @classmethod
    def list_from_json(cls, data: bytes) -> list[Acl]:
        """Decode the body of a list of ACLs. Raises :class:`BodyError`."""
        return [cls(text_at(each, "subject").removeprefix(USER_SUBJECT), _entries(each)) for each in _objects(data)]


def _entries(acl: dict[str, Any]) -> tuple[AclEntry, ...]:
    try:
        return tuple(
            AclEntry(
                text_at(entry, "resource"),
                tuple(names_at(entry, "actions")),
                tuple(names_at(entry, "sourceIps")),
                text_at(entry, "decision", "Allow"),
                text_at(policy, "policyType", "Custom"),
            )
            for policy in list_at(acl, "policies")
            for entry in list_at(policy, "entries")
        )
    except AttributeError as error:
        raise BodyError(f"not an ACL: {acl!r:.80}") from error


def _objects(data: bytes) -> list[dict[str, Any]]:
    value = loads(data) if data else []
    if not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        raise BodyError(f"not a list of objects: {data!r:.80}")
    return value
