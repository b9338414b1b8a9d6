"""What each request needs: which actions on which resources (RocketMQ ``DefaultAuthorizationContextBuilder`` and the
``RocketMQAction`` of its headers).

RocketMQ lets everyone who is authenticated pass where it has no rule, the broker's configuration, group administration
and lite pulls among them. Here such a request is an administrator's: it needs its action on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.bodies.pop import batch_ack_names
from raptormq.protocol.bodies.tolerant_json import loads_request
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.pop_handle import real_topic
from raptormq.protocol.topic_names import RETRY_PREFIX
from raptormq.security.gate import Demands
from raptormq.security.resources import Demand, Resource, group_resource, topic_or_group

MAX_HEARTBEAT_BYTES = 512 * 1024
"""Heartbeats beyond are not judged, hence refused: judging cannot be done in turns with other requests, and this much
names 3,000 topics, for which it takes 50 ms."""

MAX_ACKNOWLEDGED = 1_000
"""Pairs of group and topic that acknowledgements (200151) may be for: more are not judged, hence refused, for the same
reason. Clients name one or a few."""

Rule = Callable[[RemotingCommand], list[Demand]]

_PUB, _SUB, _GET = ("Pub",), ("Sub",), ("Get",)
_READ = ("Sub", "Get")


def demands_in(cluster: str) -> Demands:
    """Return what tells the needs of requests to a broker of ``cluster``."""
    return partial(demands_of, cluster=cluster)


def demands_of(request: RemotingCommand, cluster: str) -> list[Demand]:
    """Return all that ``request`` needs; nothing for what every user may do.

    Raises:
        ProtocolError: the body that names the resources cannot be read.
    """
    rule = _RULES.get(request.code)
    if rule is not None:
        return rule(request)
    if request.code in _FREE:
        return []
    fields = _FIELDS.get(request.code)
    if fields is not None:
        actions, names = fields
        found = _named(request.ext_fields, names, actions)
        if found:
            return found
    else:
        actions = _GET if request.code in _CLUSTER_READS else ("Update",)
    return [Demand(Resource("Cluster", cluster), actions)]


def _named(fields: Mapping[str, str], names: tuple[str, ...], actions: tuple[str, ...]) -> list[Demand]:
    found: list[Demand] = []
    for name in names:
        value = fields.get(name)
        if value:
            values = value.split(";") if name == "topicList" else [value]
            resource = group_resource if "roup" in name else topic_or_group
            found += [Demand(resource(each), actions) for each in values]
    return found


def _read_by(group: str, topic: str, actions: tuple[str, ...]) -> list[Demand]:
    """Return what ``group`` needs to read ``topic``, besides itself: nothing for its own retries, the topic that they
    were popped from for those of pops (:func:`~raptormq.protocol.pop_handle.pop_retry_topic`), and for the retries of
    another group that group.
    """
    own = RETRY_PREFIX + group
    if topic == own:
        return []
    if topic.startswith((f"{own}_", f"{own}+")):
        topic = topic[len(own) + 1 :]
    return [Demand(topic_or_group(topic), actions)]


def to_view(topic: str) -> list[Demand]:
    """Return what is needed to look at a message of ``topic``."""
    return [Demand(topic_or_group(topic), _GET)]


def to_send(topic: str) -> list[Demand]:
    """Return what is needed to send a message to ``topic``: to a retry topic that of its group, whichever the request
    names, which is the producer's own word.
    """
    if topic.startswith(RETRY_PREFIX):
        return [Demand(group_resource(topic), _SUB)]
    return [Demand(Resource("Topic", topic), _PUB)]


def to_change(topic: str) -> list[Demand]:
    """Return what is needed to administer the messages of ``topic``."""
    return [Demand(topic_or_group(topic), ("Update",))]


def to_consume(group: str, topic: str) -> list[Demand]:
    """Return what ``group`` needs to get a message of ``topic``, besides itself."""
    return _read_by(group, topic, _SUB)


def _route(request: RemotingCommand) -> list[Demand]:
    topic = request.ext_fields.get("topic") or ""
    resource = topic_or_group(topic)
    return [Demand(resource, _READ if resource.kind == "Group" else ("Pub", "Sub", "Get"))]


def _send(topic_field: str) -> Rule:
    def rule(request: RemotingCommand) -> list[Demand]:
        return to_send(request.ext_fields.get(topic_field) or "")

    return rule


def _end_transaction(request: RemotingCommand) -> list[Demand]:
    topic = request.ext_fields.get("topic")
    return [Demand(Resource("Topic", topic), _PUB)] if topic else []


def _send_back(request: RemotingCommand) -> list[Demand]:
    return [Demand(group_resource(request.ext_fields.get("group") or ""), _SUB)]


def _consuming(actions: tuple[str, ...]) -> Rule:
    def rule(request: RemotingCommand) -> list[Demand]:
        fields = request.ext_fields
        group = fields.get("consumerGroup") or ""
        return [*_read_by(group, fields.get("topic") or "", actions), Demand(group_resource(group), actions)]

    return rule


def _query(request: RemotingCommand) -> list[Demand]:
    return [Demand(Resource("Topic", request.ext_fields.get("topic") or ""), _READ)]


def _heartbeat(request: RemotingCommand) -> list[Demand]:
    if len(request.body) > MAX_HEARTBEAT_BYTES:
        raise BodyError(f"a heartbeat of {len(request.body)} bytes, more than {MAX_HEARTBEAT_BYTES}")
    found: list[Demand] = []
    for consumer in HeartbeatData.from_json(request.body).consumers:
        found.append(Demand(group_resource(consumer.group), _SUB))
        for subscription in consumer.subscriptions:
            found += _read_by(consumer.group, subscription.topic, _SUB)
    return found


def _unregister(request: RemotingCommand) -> list[Demand]:
    group = request.ext_fields.get("consumerGroup")
    return [Demand(group_resource(group), _SUB)] if group else []


def _members(request: RemotingCommand) -> list[Demand]:
    return [Demand(group_resource(request.ext_fields.get("consumerGroup") or ""), _READ)]


def _locks(request: RemotingCommand) -> list[Demand]:
    body = loads_request(request.body)
    group = str(body.get("consumerGroup") or "")
    found = [Demand(group_resource(group), _SUB)]
    queues = [queue for queue in body.get("mqSet") or [] if isinstance(queue, dict)]
    for topic in dict.fromkeys(str(queue.get("topic") or "") for queue in queues):  # thousands are of the same one
        found += _read_by(group, topic, _SUB)
    return found


def _acknowledgements(request: RemotingCommand) -> list[Demand]:
    names = batch_ack_names(request.body) if request.body else set()
    if len(names) > MAX_ACKNOWLEDGED:
        raise BodyError(f"acknowledgements for {len(names)} groups and topics, more than {MAX_ACKNOWLEDGED}")
    found: dict[Demand, None] = {}
    for group, topic, kind in names:
        found[Demand(group_resource(group), _SUB)] = None
        found.update(dict.fromkeys(_read_by(group, real_topic(topic, group, kind), _SUB)))
    return list(found)


def _conversion(request: RemotingCommand) -> list[Demand]:
    actions = _GET if request.ext_fields.get("action") == "status" else ("Update",)
    return [Demand(Resource("Topic", request.ext_fields.get("topic") or ""), actions)]


_RULES: dict[int, Rule] = {
    10: _send("topic"),
    310: _send("b"),
    320: _send("b"),
    105: _route,
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
    31001: _conversion,
    200051: _consuming(_SUB),
    200053: _consuming(_SUB),
    200151: _acknowledgements,
}
"""Requests with a rule of their own."""

_TOPIC_AND_GROUP = ("consumerGroup", "topic")
_FIELDS: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    17: (("Create",), ("topic",)),
    29: (_GET, ("topic",)),
    30: (_GET, ("topic",)),
    31: (_GET, ("topic",)),
    32: (_GET, ("topic",)),
    33: (_GET, ("topic",)),
    202: (_GET, ("topic",)),
    203: (_GET, ("consumerGroup",)),
    207: (("Delete",), ("groupName",)),
    208: (_GET, ("consumerGroup", "topic", "topicList")),
    215: (("Delete",), ("topic",)),
    222: (("Update",), ("group", "topic")),
    223: (_GET, ("topic", "group")),
    300: (_GET, ("topic",)),
    303: (_GET, ("topic", "group")),
    307: (_GET, ("consumerGroup",)),
    308: (_GET, ("filterGroups", "compareGroup", "topic")),
    309: (_SUB, _TOPIC_AND_GROUP),
    314: (("Update",), ("destGroup", "topic")),
    321: (_GET, ("topic", "consumerGroup")),
    323: (("Update",), ("topic",)),
    343: (_GET, ("group",)),
    345: (_GET, ("group", "topic")),
    351: (_GET, ("topic",)),
    352: (_GET, ("group",)),
    353: (("Update",), ("group", "topic")),
    370: (_PUB, ("topic",)),
    200050: (_SUB, _TOPIC_AND_GROUP),
    200052: (_SUB, _TOPIC_AND_GROUP),
    200054: (_SUB, _TOPIC_AND_GROUP),
    200055: (_GET, _TOPIC_AND_GROUP),
}
"""Request -> actions, and the header's fields that name topics and groups. Without any of them it is about the
cluster."""

_FREE = frozenset({46, 324, 325, 400, 30320})
"""Replies, which go to a client and into no queue, and questions of ordinary consumers: free for every user, as in
RocketMQ. The parts of a request for several queues are judged one by one, as the sends that they stand for."""

_CLUSTER_READS = frozenset(
    {21, 26, 28, 43, 45, 106, 201, 204, 224, 301, 305, 315, 317, 328, 347, 402, 901, 3004, 3005, 3009, 3010}
)
"""Requests that read what belongs to the whole broker; all others without a rule change it."""
