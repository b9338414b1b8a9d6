"""Rules by which a request requires permissions: actions on resources (``DefaultAuthorizationContextBuilder``, and the
``RocketMQAction`` of request headers). :mod:`raptormq.broker.requests` declares the rule of each request, and
``docs/reference/access-control.md`` lists them and the differences from RocketMQ.

RocketMQ lets any authenticated user send a request for which it defines no rule, for example to change broker settings,
to administer groups or to use lite pull. This broker treats such requests as administrative: they require the action on
the cluster resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.bodies.members import list_at, names_at
from raptormq.protocol.bodies.pop import batch_ack_names
from raptormq.protocol.bodies.tolerant_json import loads_request
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.pop_handle import real_topic
from raptormq.protocol.topic_names import RETRY_PREFIX, REVIVE_PREFIX, TIMER_TOPIC, reply_topic
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

Rule = Callable[[RemotingCommand, str], list[RequiredPermission]]
"""Returns the permissions that a request to a broker of the cluster with this name requires, all of them. The list is
empty if every user may send the request. Raises ProtocolError if the body with the names of the resources cannot be
decoded.
"""

PUB, SUB, GET = ("Pub",), ("Sub",), ("Get",)
CREATE, UPDATE, DELETE = ("Create",), ("Update",), ("Delete",)
SUB_OR_GET, SUB_OR_UPDATE = ("Sub", "Get"), ("Sub", "Update")


def every_user(_request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """The request needs only a signature."""
    return []


def on_cluster(actions: tuple[str, ...]) -> Rule:
    """Return the rule that requires ``actions`` on the cluster."""
    return lambda _, cluster: [RequiredPermission(Resource("Cluster", cluster), actions)]


def on_named(actions: tuple[str, ...], group: str | None = None, *, topic: bool = True) -> Rule:
    """Return the rule that requires ``actions`` on the group in the header field ``group``, and on the topic in the
    field ``topic`` if it counts. A request without both requires the actions on the cluster.
    """

    def rule(request: RemotingCommand, cluster: str) -> list[RequiredPermission]:
        found = _named(request.ext_fields, actions, group, has_topic=topic)
        return found or [RequiredPermission(Resource("Cluster", cluster), actions)]

    return rule


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
    return _on(topic, GET)


def to_send(topic: str) -> list[RequiredPermission]:
    """Return the permissions required to send a message to ``topic``.

    A retry topic requires those of its group. The group in the request is not used, because the producer chooses it.
    The timer topic and the revive log require a permission on all resources, because their messages control deliveries
    to any topic and group.
    """
    if topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX):
        return [RequiredPermission(Resource(ANY_TYPE), PUB)]
    return _on(topic, SUB if topic.startswith(RETRY_PREFIX) else PUB)


def to_change(topic: str) -> list[RequiredPermission]:
    """Return the permissions required to administer the messages of ``topic``."""
    return _on(topic, UPDATE)


def to_consume(group: str, topic: str) -> list[RequiredPermission]:
    """Return the permissions that ``group`` requires to consume ``topic``, in addition to those on the group."""
    return _read_by(group, topic, SUB)


def sending(topic_field: str) -> Rule:
    """Return the rule of a send to the topic in the header field ``topic_field``; see :func:`to_send`."""

    def rule(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
        return to_send(request.ext_fields.get(topic_field) or "")

    return rule


def ending_transaction(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of the end of a transaction. The topic of the stored message is checked, too."""
    topic = request.ext_fields.get("topic")
    return [RequiredPermission(Resource("Topic", topic), PUB)] if topic else []


def sending_back(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a message that a consumer sends back. The topic of the stored message is checked, too."""
    return [RequiredPermission(group_resource(request.ext_fields.get("group") or ""), SUB)]


def consuming(actions: tuple[str, ...]) -> Rule:
    """Return the rule that requires ``actions`` on the group and on the topic that it reads."""

    def rule(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
        fields = request.ext_fields
        group = fields.get("consumerGroup") or ""
        return [
            *_read_by(group, fields.get("topic") or "", actions),
            RequiredPermission(group_resource(group), actions),
        ]

    return rule


def querying_messages(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a query of messages by key."""
    return [RequiredPermission(Resource("Topic", request.ext_fields.get("topic") or ""), SUB_OR_GET)]


def heartbeat(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a heartbeat: that of each consumer in it. Producers need only a signature."""
    if len(request.body) > MAX_HEARTBEAT_BYTES:
        raise BodyError(f"the heartbeat has {len(request.body)} bytes; the limit is {MAX_HEARTBEAT_BYTES}")
    found: list[RequiredPermission] = []
    for consumer in HeartbeatData.from_json(request.body).consumers:
        found.append(RequiredPermission(group_resource(consumer.group), SUB))
        for subscription in consumer.subscriptions:
            found += _read_by(consumer.group, subscription.topic, SUB)
    return found


def unregistering(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a client that leaves its groups. Producers need only a signature."""
    group = request.ext_fields.get("consumerGroup")
    return [RequiredPermission(group_resource(group), SUB)] if group else []


def listing_members(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a list of the members of a group."""
    return [RequiredPermission(group_resource(request.ext_fields.get("consumerGroup") or ""), SUB_OR_GET)]


def locking(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a lock of queues."""
    body = loads_request(request.body)
    group = str(body.get("consumerGroup") or "")
    found = [RequiredPermission(group_resource(group), SUB)]
    queues = [queue for queue in list_at(body, "mqSet") if isinstance(queue, dict)]
    for topic in dict.fromkeys(str(queue.get("topic") or "") for queue in queues):  # most queues have the same topic
        found += _read_by(group, topic, SUB)
    return found


def acknowledging_many(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a batch of acknowledgements: that of each of them."""
    names = batch_ack_names(request.body) if request.body else set()
    if len(names) > MAX_ACKNOWLEDGED:
        raise BodyError(f"the request acknowledges {len(names)} groups and topics; the limit is {MAX_ACKNOWLEDGED}")
    found: dict[RequiredPermission, None] = {}
    for group, topic, kind in names:
        found[RequiredPermission(group_resource(group), SUB)] = None
        found.update(dict.fromkeys(_read_by(group, real_topic(topic, group, kind), SUB)))
    return list(found)


def assigning(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of an assignment of queues to a member."""
    body = loads_request(request.body)
    group, topic = (str(body.get(name) or "") for name in ("consumerGroup", "topic"))
    return [*_read_by(group, topic, SUB), RequiredPermission(group_resource(group), SUB)]


def cloning_offsets(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a copy of the offsets of one group to another one."""
    fields = request.ext_fields
    found = _named(fields, UPDATE, "destGroup", has_topic=True)
    return [RequiredPermission(group_resource(fields.get("srcGroup") or ""), GET), *found]


def converting(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
    """Rule of a conversion of a topic's queues, or of its state."""
    actions = GET if request.ext_fields.get("action") == "status" else UPDATE
    return [RequiredPermission(Resource("Topic", request.ext_fields.get("topic") or ""), actions)]


def _deleting(member: str, resources: Callable[[str], list[Resource]]) -> Rule:
    def rule(request: RemotingCommand, _cluster: str) -> list[RequiredPermission]:
        found = names_at(loads_request(request.body), member)
        if len(found) > MAX_NAMED:
            raise BodyError(f"the request deletes {len(found)} topics or groups; the limit is {MAX_NAMED}")
        return [RequiredPermission(resource, DELETE) for name in found for resource in resources(name)]

    return rule


deleting_topics = _deleting("topicList", resources_of)
deleting_groups = _deleting("groupNameList", lambda name: [group_resource(name)])


def replying(topic_field: str) -> Rule:
    """Return the rule of a reply to the topic in the header field ``topic_field``. As in RocketMQ, every user may reply
    in the reply topic of the cluster.
    """

    def rule(request: RemotingCommand, cluster: str) -> list[RequiredPermission]:
        topic = request.ext_fields.get(topic_field) or ""
        return [] if topic == reply_topic(cluster) else to_send(topic)

    return rule
