"""Administration of ACLs: 3006 create, 3007 update, 3008 delete, 3009 get, 3010 list (``AdminBrokerProcessor``)."""

from __future__ import annotations

from raptormq.protocol.bodies.tolerant_json import dumps, loads_request
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.auth import AclRequestHeader, DeleteAclRequestHeader, ListAclsRequestHeader
from raptormq.security.acls import AclTable, parse_policies, policy_type
from raptormq.security.resources import parse_resource
from raptormq.security.tables import BeginChange, not_replicated
from raptormq.security.users import UserTable, denied
from raptormq.storage.fs import TableSaver
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class AclHandlers:
    """Creates, changes, deletes and lists ACLs."""

    def __init__(
        self, users: UserTable, acls: AclTable, saver: TableSaver, begin_change: BeginChange = not_replicated
    ) -> None:
        self._begin_change = begin_change
        self._users = users
        self._acls = acls
        self._saver = saver

    def register(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.AUTH_CREATE_ACL, AclRequestHeader, self.put)
        router.add(RequestCode.AUTH_UPDATE_ACL, AclRequestHeader, self.put)
        router.add(RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader, self.delete)
        router.add(RequestCode.AUTH_GET_ACL, AclRequestHeader, self.get)
        router.add(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader, self.list)

    async def put(self, _: Connection, command: RemotingCommand, header: AclRequestHeader) -> RemotingCommand:
        """3006, 3007: add entries to an ACL. An entry replaces the entry of the same resource."""
        body = loads_request(command.body) if command.body else {}
        if not body.get("policies"):
            raise Refused(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        subject = _subject(str(body.get("subject") or header.subject or ""))
        policies = parse_policies(body)
        if not self._exists(subject):
            raise denied(f"The subject of {subject} is not exist.")
        confirmed = self._begin_change()
        self._acls.put(subject, policies)
        await self._saver.saved()
        await confirmed()
        return response_to(command)

    async def delete(self, _: Connection, command: RemotingCommand, header: DeleteAclRequestHeader) -> RemotingCommand:
        """3008: delete an ACL, or its entry for one resource."""
        subject = _subject(header.subject or "")
        if not self._exists(subject):
            raise denied("The subject is not exist.")
        if self._acls.shown(subject) is None:
            raise denied("The acl is not exist.")
        resource = parse_resource(header.resource)
        if header.resource and resource is None:
            known = "* or Topic:, Group:, Cluster: or Namespace: and a name"
            raise denied(f"The resource {header.resource:.300} is unknown: {known}.")
        confirmed = self._begin_change()
        self._acls.delete(subject, policy_type(header.policy_type), resource)
        await self._saver.saved()
        await confirmed()
        return response_to(command)

    def get(self, _: Connection, command: RemotingCommand, header: AclRequestHeader) -> RemotingCommand:
        """3009: return one ACL. The body is empty if the user has none."""
        subject = _subject(header.subject or "")
        if not self._exists(subject):
            raise denied("The subject is not exist.")
        shown = self._acls.shown(subject)
        return response_to(command, body=b"" if shown is None else dumps(shown))

    def list(self, _: Connection, command: RemotingCommand, header: ListAclsRequestHeader) -> RemotingCommand:
        """3010: list ACLs. The body is empty if there are none."""
        found = self._acls.matching(header.subject_filter, header.resource_filter)
        return response_to(command, body=dumps(found) if found else b"")

    def _exists(self, subject: str) -> bool:
        return self._users.get(subject.partition(":")[2]) is not None


def _subject(text: str) -> str:
    """Return ``User:name``.

    Raises:
        Refused: ``text`` is not a subject.
    """
    kind, _, name = text.partition(":")
    if kind.lower() != "user" or not name:
        raise Refused(ResponseCode.SYSTEM_ERROR, "An system error occurred, please try again later.")
    return f"User:{name}"
