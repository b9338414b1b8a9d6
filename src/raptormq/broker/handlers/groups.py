"""Administration of consumer groups: 200, 225 (create, change), 201 (list), 207, 5003 (delete), 352 (get), 353 (forbid
a topic) (``AdminBrokerProcessor``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.broker.config import MetadataSettings
from raptormq.broker.handlers.pages import page_of
from raptormq.broker.tables import ChangeBarrier, GroupConfig, GroupTable, TopicTable, with_attributes
from raptormq.errors import BodyError, MessageError
from raptormq.protocol.bodies.members import flag_at, names_at
from raptormq.protocol.bodies.tolerant_json import dumps, loads_request
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.topic import (
    AllGroupsRequestHeader,
    DeleteGroupRequestHeader,
    GroupForbiddenRequestHeader,
    GroupRequestHeader,
    TotalGroupResponseHeader,
)
from raptormq.protocol.topic_names import check_group, retry_topic
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class GroupHandlers:
    """Creates, changes, deletes and lists consumer groups."""

    def __init__(
        self,
        store: MessageStore,
        groups: GroupTable,
        topics: TopicTable,
        barrier: ChangeBarrier,
        forbidden: Callable[[str, str], None],
        metadata: MetadataSettings,
    ) -> None:
        """Create the handlers. ``forbidden`` is called with topic and group when a group loses the permission to read a
        topic.
        """
        self._store = store
        self._groups = groups
        self._topics = topics
        self._barrier = barrier
        self._on_forbidden = forbidden
        self._metadata = metadata

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, self.put)
        router.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, self.put_list)
        router.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, AllGroupsRequestHeader, self.all_configs)
        router.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupRequestHeader, self.delete)
        router.add(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, None, self.delete_list)
        router.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader, self.config)
        router.add(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, GroupForbiddenRequestHeader, self.forbid)

    async def put(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """200: create a group or change its settings."""
        change = self._barrier.begin()
        self._groups.put(self._checked(_body(command)))
        await change.passed()
        return response_to(command)

    def _checked(self, value: Any) -> GroupConfig:
        """Return the new settings of a group.

        Raises:
            Refused: 29 or 1, the settings are invalid.
        """
        try:
            config = GroupConfig.from_dict(value)
            check_group(config.name)
        except (BodyError, MessageError) as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        try:
            return with_attributes(config, self._groups.get(config.name))
        except MessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None

    async def put_list(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """225: create or change several groups. If one is invalid, none is changed."""
        change = self._barrier.begin()
        values = _body(command).get("groupConfigList")
        checked = [self._checked(value) async for value in cooperatively(values if isinstance(values, list) else [])]
        async for config in cooperatively(checked):
            change.check()
            self._groups.put(config)
        await change.passed()
        return response_to(command)

    async def delete(
        self, _: Connection, command: RemotingCommand, header: DeleteGroupRequestHeader
    ) -> RemotingCommand:
        """207: delete a group, its retry topic and, on request, its offsets."""
        await self._delete([header.group_name], clean_offset=bool(header.clean_offset))
        return response_to(command)

    async def delete_list(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """5003: delete several groups, like 207."""
        body = _body(command)
        names = names_at(body, "groupNameList")
        if not names:
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified group name list is blank.")
        if not all(name.strip() for name in names):
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified group name is blank.")
        await self._delete(names, clean_offset=flag_at(body, "cleanOffset"))
        return response_to(command)

    async def _delete(self, names: list[str], *, clean_offset: bool) -> None:
        change = self._barrier.begin()
        async for name in cooperatively(names):
            change.check()
            if self._groups.delete(name):
                if clean_offset:
                    self._store.consumer_offsets.remove_group(name)
                topic = retry_topic(name)
                if self._topics.delete(topic):
                    self._barrier.delete_queues(topic)
        await self._store.save_deletions()
        await change.passed()  # also without a change: the save of an earlier request may have failed

    def config(self, _: Connection, command: RemotingCommand, header: GroupRequestHeader) -> RemotingCommand:
        """352: return the settings of one group."""
        config = self._groups.get(header.group)
        if config is None:
            remark = f"consumer group {header.group} does not exist on this broker"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return response_to(command, body=dumps(config.to_dict()))

    async def forbid(
        self, _: Connection, command: RemotingCommand, header: GroupForbiddenRequestHeader
    ) -> RemotingCommand:
        """353: forbid or allow a group to read a topic, and return whether it is allowed."""
        group, topic = header.group, header.topic
        if header.readable is not None:
            change = self._barrier.begin()
            self._groups.set_readable(group, topic, readable=header.readable)
            if not header.readable:
                self._on_forbidden(topic, group)
            await change.passed()
        body = {"group": group, "readable": self._groups.may_read(group, topic), "topic": topic}
        return response_to(command, body=dumps(body))

    def all_configs(self, _: Connection, command: RemotingCommand, header: AllGroupsRequestHeader) -> RemotingCommand:
        """201: return the settings of all groups, or of one page."""
        groups = self._groups
        page = page_of(
            groups.configs, groups.version, self._metadata,
            first=header.group_seq, limit=header.max_group_num, seen=header.data_version,
        )  # fmt: skip
        total = TotalGroupResponseHeader(len(groups.configs))
        return response_to(command, header=total, body=dumps(groups.to_dict(page)))


def _body(command: RemotingCommand) -> dict[str, Any]:
    return loads_request(command.body)
