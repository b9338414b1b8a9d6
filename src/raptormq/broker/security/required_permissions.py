"""Permissions that each request requires: actions on resources (``DefaultAuthorizationContextBuilder``, and the
``RocketMQAction`` of request headers). ``docs/reference/access-control.md`` lists them and the differences from
RocketMQ.

RocketMQ lets any authenticated user send a request for which it defines no rule, for example to change broker settings,
to administer groups or to use lite pull. This broker treats such requests as administrative: they require the action on
the cluster resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.bodies.members import list_at, names_at
from raptormq.protocol.bodies.pop import batch_ack_names
from raptormq.protocol.bodies.tolerant_json import loads_request
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.pop_handle import real_topic
from raptormq.protocol.topic_names import RETRY_PREFIX, REVIVE_PREFIX, TIMER_TOPIC, reply_topic
from raptormq.security.gate import PermissionResolver
from raptormq.security.resources import ANY_TYPE, RequiredPermission, Resource, group_resource, resources_of

MAX_HEARTBEAT_BYTES = 512 * 1024
"""Maximum size of a heartbeat with access control. The authorization blocks the event loop. It takes 50 ms for a
heartbeat of this size, which contains about 3,000 topics.
"""

MAX_ACKNOWLEDGED = 1_000
"""Maximum number of pairs of group and topic in a request 200151. The authorization of more would block the event loop.
"""

MAX_NAMED = 1_000
"""Maximum number of topics or groups in a request 5002 or 5003. The authorization of more would block the event loop.
"""

Rule = Callable[[RemotingCommand], list[RequiredPermission]]

_PUB, _SUB, _GET = ("Pub",), ("Sub",), ("Get",)
_READ = ("Sub", "Get")


def permission_resolver(cluster: str) -> PermissionResolver:
    """Return the function that determines the required permissions of requests to a broker of ``cluster``."""
    return partial(permissions_of, cluster=cluster)


def permissions_of(request: RemotingCommand, cluster: str) -> list[RequiredPermission]:
    """Return all permissions that ``request`` requires. The list is empty if every user may send the request.

    Raises:
        ProtocolError: the body with the names of the resources cannot be decoded.
    """
    rule = _RULES.get(request.code)
    if rule is not None:
        return rule(request)
    if request.code in _FREE:
        return []
    reply_topic_field = _REPLIES.get(request.code)
    if reply_topic_field is not None:
        topic = request.ext_fields.get(reply_topic_field) or ""
        return [] if topic == reply_topic(cluster) else to_send(topic)
    fields = _FIELDS.get(request.code)
    if fields is not None:
        actions, group_field, has_topic = fields
        found = _named(request.ext_fields, actions, group_field, has_topic=has_topic)
        if found:
            return found
    else:
        actions = _GET if request.code in _CLUSTER_READS else ("Update",)
    return [RequiredPermission(Resource("Cluster", cluster), actions)]


def _named(
    fields: Mapping[str, str], actions: tuple[str, ...], group_field: str | None, *, has_topic: bool
) -> list[RequiredPermission]:
    group = fields.get(group_field) if group_field is not None else None
    topic = fields.get("topic") if has_topic else None
    found = [RequiredPermission(group_resource(group), actions)] if group else []
    return [*found, *_read_by(group or "", topic, actions)] if topic else found


def _on(topic: str, actions: tuple[str, ...]) -> list[RequiredPermission]:
    return [RequiredPermission(resource, actions) for resource in resources_of(topic)]


def _read_by(group: str, topic: str, actions: tuple[str, ...]) -> list[RequiredPermission]:
    """Return the permissions that ``group`` requires to read ``topic``, in addition to those on the group.

    The group's retry topic requires no permission. A retry topic of POP consumption
    (:func:`~raptormq.protocol.pop_handle.pop_retry_topic`) requires those of the original topic. The retry topic of
    another group requires those of that group.
    """
    own = RETRY_PREFIX + group
    if not group:
        return _on(topic, actions)
    if topic == own:
        return []
    if topic.startswith((f"{own}_", f"{own}+")):
        topic = topic[len(own) + 1 :]
    return _on(topic, actions)


def to_view(topic: str) -> list[RequiredPermission]:
    """Return the permissions required to view a message of ``topic``."""
    return _on(topic, _GET)


def to_send(topic: str) -> list[RequiredPermission]:
    """Return the permissions required to send a message to ``topic``.

    A retry topic requires those of its group. The group in the request is not used, because the producer chooses it.
    The timer topic and the revive log require a permission on all resources, because their messages control deliveries
    to any topic and group.
    """
    if topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX):
        return [RequiredPermission(Resource(ANY_TYPE), _PUB)]
    return _on(topic, _SUB if topic.startswith(RETRY_PREFIX) else _PUB)


def to_change(topic: str) -> list[RequiredPermission]:
    """Return the permissions required to administer the messages of ``topic``."""
    return _on(topic, ("Update",))


def to_consume(group: str, topic: str) -> list[RequiredPermission]:
    """Return the permissions that ``group`` requires to consume ``topic``, in addition to those on the group."""
    return _read_by(group, topic, _SUB)


def _send(topic_field: str) -> Rule:
    def rule(request: RemotingCommand) -> list[RequiredPermission]:
        return to_send(request.ext_fields.get(topic_field) or "")

    return rule


def _end_transaction(request: RemotingCommand) -> list[RequiredPermission]:
    topic = request.ext_fields.get("topic")
    return [RequiredPermission(Resource("Topic", topic), _PUB)] if topic else []


def _send_back(request: RemotingCommand) -> list[RequiredPermission]:
    return [RequiredPermission(group_resource(request.ext_fields.get("group") or ""), _SUB)]


def _consuming(actions: tuple[str, ...]) -> Rule:
    def rule(request: RemotingCommand) -> list[RequiredPermission]:
        fields = request.ext_fields
        group = fields.get("consumerGroup") or ""
        return [
            *_read_by(group, fields.get("topic") or "", actions),
            RequiredPermission(group_resource(group), actions),
        ]

    return rule


def _query(request: RemotingCommand) -> list[RequiredPermission]:
    return [RequiredPermission(Resource("Topic", request.ext_fields.get("topic") or ""), _READ)]


def _heartbeat(request: RemotingCommand) -> list[RequiredPermission]:
    if len(request.body) > MAX_HEARTBEAT_BYTES:
        raise BodyError(f"the heartbeat has {len(request.body)} bytes; the limit is {MAX_HEARTBEAT_BYTES}")
    found: list[RequiredPermission] = []
    for consumer in HeartbeatData.from_json(request.body).consumers:
        found.append(RequiredPermission(group_resource(consumer.group), _SUB))
        for subscription in consumer.subscriptions:
            found += _read_by(consumer.group, subscription.topic, _SUB)
    return found


def _unregister(request: RemotingCommand) -> list[RequiredPermission]:
    group = request.ext_fields.get("consumerGroup")
    return [RequiredPermission(group_resource(group), _SUB)] if group else []


def _members(request: RemotingCommand) -> list[RequiredPermission]:
    return [RequiredPermission(group_resource(request.ext_fields.get("consumerGroup") or ""), _READ)]


def _locks(request: RemotingCommand) -> list[RequiredPermission]:
    body = loads_request(request.body)
    group = str(body.get("consumerGroup") or "")
    found = [RequiredPermission(group_resource(group), _SUB)]
    queues = [queue for queue in list_at(body, "mqSet") if isinstance(queue, dict)]
    for topic in dict.fromkeys(str(queue.get("topic") or "") for queue in queues):  # most queues have the same topic
        found += _read_by(group, topic, _SUB)
    return found


def _acknowledgements(request: RemotingCommand) -> list[RequiredPermission]:
    names = batch_ack_names(request.body) if request.body else set()
    if len(names) > MAX_ACKNOWLEDGED:
        raise BodyError(f"the request acknowledges {len(names)} groups and topics; the limit is {MAX_ACKNOWLEDGED}")
    found: dict[RequiredPermission, None] = {}
    for group, topic, kind in names:
        found[RequiredPermission(group_resource(group), _SUB)] = None
        found.update(dict.fromkeys(_read_by(group, real_topic(topic, group, kind), _SUB)))
    return list(found)


def _assignment(request: RemotingCommand) -> list[RequiredPermission]:
    body = loads_request(request.body)
    group, topic = (str(body.get(name) or "") for name in ("consumerGroup", "topic"))
    return [*_read_by(group, topic, _SUB), RequiredPermission(group_resource(group), _SUB)]


def _clone(request: RemotingCommand) -> list[RequiredPermission]:
    fields = request.ext_fields
    found = _named(fields, ("Update",), "destGroup", has_topic=True)
    return [RequiredPermission(group_resource(fields.get("srcGroup") or ""), _GET), *found]


def _conversion(request: RemotingCommand) -> list[RequiredPermission]:
    actions = _GET if request.ext_fields.get("action") == "status" else ("Update",)
    return [RequiredPermission(Resource("Topic", request.ext_fields.get("topic") or ""), actions)]


def _deleting(member: str, resources: Callable[[str], list[Resource]]) -> Rule:
    def rule(request: RemotingCommand) -> list[RequiredPermission]:
        found = names_at(loads_request(request.body), member)
        if len(found) > MAX_NAMED:
            raise BodyError(f"the request deletes {len(found)} topics or groups; the limit is {MAX_NAMED}")
        return [RequiredPermission(resource, ("Delete",)) for name in found for resource in resources(name)]

    return rule


_RULES: dict[int, Rule] = {
    10: _send("topic"),
    310: _send("b"),
    320: _send("b"),
    37: _end_transaction,
    36: _send_back,
    11: _consuming(_SUB),
    361: _consuming(_SUB),
    12: _query,
    34: _heartbeat,
    35: _unregister,
    38: _members,
    14: _consuming(_READ),
    15: _consuming(("Sub", "Update")),
    41: _locks,
    42: _locks,
    314: _clone,
    400: _assignment,
    5002: _deleting("topicList", resources_of),
    5003: _deleting("groupNameList", lambda name: [group_resource(name)]),
    31001: _conversion,
    31031: _send("b"),
    200051: _consuming(_SUB),
    200053: _consuming(_SUB),
    200151: _acknowledgements,
}
"""Requests with a special rule."""

_FIELDS: dict[int, tuple[tuple[str, ...], str | None, bool]] = {
    17: (("Create",), None, True),
    29: (_GET, None, True),
    30: (_GET, None, True),
    31: (_GET, None, True),
    32: (_GET, None, True),
    33: (_GET, None, True),
    202: (_GET, None, True),
    203: (_GET, "consumerGroup", False),
    207: (("Delete",), "groupName", False),
    208: (_GET, "consumerGroup", True),
    215: (("Delete",), None, True),
    222: (("Update",), "group", True),
    223: (_GET, "group", True),
    300: (_GET, None, True),
    303: (_GET, "group", True),
    307: (_GET, "consumerGroup", False),
    309: (_SUB, "consumerGroup", True),
    321: (_GET, "consumerGroup", True),
    323: (("Update",), None, True),
    343: (_GET, "group", False),
    345: (_GET, "group", True),
    351: (_GET, None, True),
    352: (_GET, "group", False),
    353: (("Update",), "group", True),
    370: (_PUB, None, True),
    200050: (_SUB, "consumerGroup", True),
    200052: (_SUB, "consumerGroup", True),
    200054: (_SUB, "consumerGroup", True),
    200055: (_GET, "consumerGroup", True),
}
"""Actions, the header field with the group, and whether the header field ``topic`` is used, by request code. A request
without group and topic requires the actions on the cluster."""

_REPLIES = {324: "topic", 325: "b"}
"""Header field with the topic of a reply, by request code. As in RocketMQ, every user may reply in the reply topic of
the cluster."""

_FREE = frozenset({46, 30320, 31032})
"""Requests that every user may send. As in RocketMQ, they include 46, which only validates an expression. The parts of
a request 30320 are authorized separately, like single sends, and so are the lists that a commit (31032) publishes.
"""

_CLUSTER_READS = frozenset(
    {21, 26, 28, 43, 45, 60, 61, 201, 204, 305, 315, 317, 328, 402, 906, 907, 1005, 1006, 1007, 1010}
    | {3004, 3005, 3009, 3010, 31011, 31021}
)
"""Requests that read the state of the whole broker. All other requests without a rule change it."""
