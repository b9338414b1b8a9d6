"""Consumer group settings (``SubscriptionGroupManager``, ``SubscriptionGroupConfig``, file ``subscriptionGroup.json``).

The first heartbeat of a group creates it with default settings, unless ``autoCreateSubscriptionGroup`` is false. File
and wire format::

    {"dataVersion": {...}, "forbiddenTable": {"group": {"topic": 4}}, "subscriptionGroupTable": {"group":
    {"groupName": "group", "consumeEnable": true, ...}}}

:mod:`raptormq.broker.tables.attributes` describes the attributes of a group.

``forbiddenTable`` contains a bit mask for each group and topic. The value 4 forbids reading. As in RocketMQ, the other
bits have no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from raptormq.broker.tables.attributes import GROUP_ATTRIBUTES, PRIORITY_FACTOR, EffectNotices, change_attributes
from raptormq.errors import BodyError
from raptormq.files import Files
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.members import flag_at, object_at, text_at
from raptormq.protocol.bodies.topic_config import DataVersion

MAX_RETRY_QUEUES = 1_024
_READING = 4
_DEFAULT_PRIORITY_FACTOR = 100
_ACTED_ON = frozenset(
    {
        "attributes",
        "consumeBroadcastEnable",
        "consumeEnable",
        "groupName",
        "notifyConsumerIdsChangedEnable",
        "retryMaxTimes",
        "retryQueueNums",
    }
)


@dataclass(slots=True)
class GroupConfig:
    """Settings of one group. ``others`` contains the fields that this version does not use."""

    name: str
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    notify_consumer_ids_changed_enable: bool = True
    attributes: dict[str, str] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def priority_factor(self) -> int:
        """Percentage of pops of a PRIORITY topic in the order of priority. An invalid value in a file means RocketMQ's
        default, 100.
        """
        try:
            return int(self.attributes.get(PRIORITY_FACTOR, _DEFAULT_PRIORITY_FACTOR))
        except ValueError:
            return _DEFAULT_PRIORITY_FACTOR

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, with RocketMQ's defaults for missing fields that this version does not use."""
        return {
            "attributes": self.attributes,
            "brokerId": 0,
            "consumeFromMinEnable": True,
            "consumeMessageOrderly": False,
            "consumeTimeoutMinute": 15,
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "groupSysFlag": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            **self.others,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
        }

    @classmethod
    def from_dict(cls, value: Any) -> GroupConfig:
        """Decode a JSON object. Missing fields get RocketMQ's defaults.

        Raises:
            BodyError: the value is not a group, or a number is out of range.
        """
        try:
            group = cls(
                text_at(value, "groupName"),
                flag_at(value, "consumeEnable", True),
                flag_at(value, "consumeBroadcastEnable", True),
                int(value.get("retryQueueNums", 1)),
                int(value.get("retryMaxTimes", 16)),
                flag_at(value, "notifyConsumerIdsChangedEnable", True),
                {key: str(text) for key, text in object_at(value, "attributes").items()},
                {name: each for name, each in value.items() if name not in _ACTED_ON},
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"not a consumer group: {value!r:.80}") from error
        if not 0 <= group.retry_queue_nums <= MAX_RETRY_QUEUES:
            raise BodyError(f"retryQueueNums {group.retry_queue_nums} is not in the range 0 to {MAX_RETRY_QUEUES}")
        return group


def with_attributes(requested: GroupConfig, current: GroupConfig | None) -> GroupConfig:
    """Return the settings of a group after a request.

    The attributes of ``requested`` are changes to ``current`` (None for a new group): ``+key`` and ``key`` set an
    attribute, ``-key`` removes it. Keys without a sign allow clients to write settings that they have read.

    Raises:
        MessageError: an attribute is unknown or its value is not allowed.
    """
    changes, removed = dict[str, str](), set[str]()
    for key, value in requested.attributes.items():
        if key[:1] == "-":
            removed.add(key[1:])
        else:
            changes[key.removeprefix("+")] = value
    known = current.attributes if current is not None else None
    attributes = change_attributes("group", GROUP_ATTRIBUTES, changes, frozenset(removed), known)
    return replace(requested, attributes=attributes)


class GroupTable:
    """All consumer groups of one broker."""

    def __init__(self, saved: dict[str, Any] | None, clock: Callable[[], int]) -> None:
        """Load the content of ``subscriptionGroup.json``. ``saved`` is None at the first start.

        Raises:
            BodyError: the content is not a table of groups.
        """
        fields: dict[str, Any] = saved or {}
        table = object_at(fields, "subscriptionGroupTable")
        self.configs: dict[str, GroupConfig] = {name: GroupConfig.from_dict(group) for name, group in table.items()}
        self._plain = {name: group.to_dict() for name, group in self.configs.items()}
        self.forbidden = _read_forbidden(fields.get("forbiddenTable") or {})
        """Bit masks by group and topic. Usually empty."""
        self.version = DataVersion.from_dict(fields.get("dataVersion"))
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._notices = EffectNotices("group", GROUP_ATTRIBUTES)
        for name, group in self.configs.items():
            self._notices.log_new(name, group.attributes)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change."""
        self._listeners.append(listener)

    def get(self, group: str) -> GroupConfig | None:
        """Return the settings of a group."""
        return self.configs.get(group)

    def put(self, config: GroupConfig) -> None:
        """Create or change a group."""
        if self.configs.get(config.name) != config:
            self.configs[config.name] = config
            self._plain[config.name] = config.to_dict()
            self._notices.log_new(config.name, config.attributes)
            self._changed()

    def delete(self, group: str) -> bool:
        """Remove a group. Return False if it does not exist."""
        if self.configs.pop(group, None) is None:
            return False
        del self._plain[group]
        self.forbidden.pop(group, None)
        self._changed()
        return True

    def forbid(self, forbidden: dict[str, dict[str, int]]) -> None:
        """Replace ``forbiddenTable``.

        Raises:
            BodyError: the value does not have the format of the table.
        """
        table = _read_forbidden(forbidden)
        if table != self.forbidden:
            self.forbidden = table
            self._changed()

    def may_read(self, group: str, topic: str) -> bool:
        """Return whether a group may read a topic."""
        return not self.forbidden.get(group, {}).get(topic, 0) & _READING

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Forbid or allow a group to read a topic."""
        if readable is self.may_read(group, topic):
            return
        row = self.forbidden.setdefault(group, {})
        row[topic] = row.get(topic, 0) ^ _READING
        if not row[topic]:
            del row[topic]
        if not row:
            del self.forbidden[group]
        self._changed()

    def to_dict(self, page: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the content of ``subscriptionGroup.json``, which is also the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG.

        ``page`` selects groups by name. The objects of the groups are cached, because every change writes the whole
        table, which may have thousands of groups.
        """
        names = self.configs if page is None else set(page)
        all_named = len(names) == len(self.configs)
        forbidden = self.forbidden
        return {
            "dataVersion": self.version.to_dict(),
            "forbiddenTable": forbidden
            if all_named
            else {name: forbidden[name] for name in forbidden if name in names},
            "subscriptionGroupTable": dict(self._plain) if all_named else {name: self._plain[name] for name in names},
        }

    def _changed(self) -> None:
        self.version = self.version.next(self._clock())
        for listener in self._listeners:
            listener()


def groups_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the group table at ``path``."""
    without = "without it groups have default settings, and may read topics that were forbidden"
    return JsonFile(path, files, key="subscriptionGroupTable", without=without)


def _read_forbidden(value: Any) -> dict[str, dict[str, int]]:
    try:
        return {str(group): {str(topic): int(bits) for topic, bits in row.items()} for group, row in value.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BodyError(f"not a forbiddenTable: {value!r:.80}") from error
