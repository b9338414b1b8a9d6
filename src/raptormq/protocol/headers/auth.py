"""Headers of the requests that manage users and their permissions (3001 to 3010)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class UserRequestHeader(Header):
    """3001 create, 3002 update, 3003 delete, 3004 get."""

    username: str | None = None


@dataclass(slots=True)
class ListUsersRequestHeader(Header):
    """3005: list users."""

    filter: str | None = None


@dataclass(slots=True)
class AclRequestHeader(Header):
    """3006 create, 3007 update, 3009 get. A subject is ``User:name``."""

    subject: str | None = None


@dataclass(slots=True)
class DeleteAclRequestHeader(Header):
    """3008: delete an ACL, or its entry for one resource."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@dataclass(slots=True)
class ListAclsRequestHeader(Header):
    """3010: list ACLs."""

    subject_filter: str | None = None
    resource_filter: str | None = None
