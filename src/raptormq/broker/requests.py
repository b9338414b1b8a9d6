"""The requests that a broker answers: which broker answers each one, and which permissions it requires.

A new request is declared here once. The guards of followers, slaves and masters, the forwarding of a former leader,
access control, and the tables in ``docs/reference`` follow from the declaration. The handlers of its area register its
header and its handler with the router.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from raptormq.broker.security.required_permissions import (
    CREATE,
    DELETE,
    GET,
    PUB,
    SUB,
    SUB_OR_GET,
    SUB_OR_UPDATE,
    UPDATE,
    Rule,
    acknowledging_many,
    assigning,
    cloning_offsets,
    consuming,
    converting,
    deleting_groups,
    deleting_topics,
    ending_transaction,
    every_user,
    heartbeat,
    listing_members,
    locking,
    on_cluster,
    on_named,
    querying_messages,
    replying,
    sending,
    sending_back,
    unregistering,
)
from raptormq.protocol.codes import RequestCode as Code
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.security.gate import PermissionResolver
from raptormq.security.resources import RequiredPermission


class By(Enum):
    """Which brokers answer a request.

    Attributes:
        follower: whether a follower of a Dledger group answers it. It refuses other requests with SERVICE_NOT_AVAILABLE
            (14), which clients retry.
        slave_code: response code with which a slave refuses it; None if a slave answers it. The codes are those of
            Apache RocketMQ.
        is_withheld: whether a master refuses it while another copy of its log has more messages.
    """

    EVERY = True, None, False
    """Every broker."""
    SERVING = True, None, True
    """Every broker that serves consumers. Like a slave of Apache RocketMQ, a follower serves confirmed messages."""
    LEADER_OR_SLAVE = False, None, True
    """The leader of a group, a master or a slave. Consumers continue with a slave while there is no master, but a group
    soon has another leader."""
    LEADER = False, ResponseCode.SERVICE_NOT_AVAILABLE, True
    """The leader of a group, or a master."""
    DECIDER = False, ResponseCode.SLAVE_NOT_AVAILABLE, True
    """The leader or the master, which decides about a stored message."""
    OWNER = False, ResponseCode.SYSTEM_ERROR, True
    """The leader or the master, whose tables the other copies have."""
    EVERY_BUT_SLAVE = True, ResponseCode.SYSTEM_ERROR, False
    """Every broker but a slave: each member of a group converts its own queues."""

    def __init__(self, follower: bool, slave_code: ResponseCode | None, is_withheld: bool) -> None:
        self.follower = follower
        self.slave_code = slave_code
        self.is_withheld = is_withheld


class Request(NamedTuple):
    """The declaration of one request code."""

    code: Code
    answered_by: By
    rule: Rule
    """Required permissions."""
    is_forwarded: bool = False
    """Whether a member that has ceased to lead forwards it to the next leader. Such a request does not depend on the
    connection on which it arrived.
    """


_DECLARED = (
    # messages of producers
    Request(Code.SEND_MESSAGE, By.LEADER, sending("topic"), is_forwarded=True),
    Request(Code.SEND_MESSAGE_V2, By.LEADER, sending("b"), is_forwarded=True),
    Request(Code.SEND_BATCH_MESSAGE, By.LEADER, sending("b"), is_forwarded=True),
    Request(Code.SEND_QUEUE_BATCHES, By.LEADER, every_user, is_forwarded=True),
    Request(Code.STAGE_BATCH, By.LEADER, sending("b")),
    Request(Code.COMMIT_STAGED, By.LEADER, every_user),
    Request(Code.SEND_REPLY_MESSAGE, By.LEADER, replying("topic")),
    Request(Code.SEND_REPLY_MESSAGE_V2, By.LEADER, replying("b")),
    Request(Code.CONSUMER_SEND_MSG_BACK, By.LEADER, sending_back, is_forwarded=True),
    Request(Code.END_TRANSACTION, By.DECIDER, ending_transaction, is_forwarded=True),
    Request(Code.RESUME_CHECK_HALF_MESSAGE, By.LEADER, on_named(UPDATE)),
    Request(Code.RECALL_MESSAGE, By.DECIDER, on_named(PUB), is_forwarded=True),
    # consumers
    Request(Code.PULL_MESSAGE, By.SERVING, consuming(SUB)),
    Request(Code.LITE_PULL_MESSAGE, By.SERVING, consuming(SUB)),
    Request(Code.POP_MESSAGE, By.LEADER, on_named(SUB, "consumerGroup")),
    Request(Code.PEEK_MESSAGE, By.EVERY, on_named(SUB, "consumerGroup")),
    Request(Code.NOTIFICATION, By.EVERY, on_named(SUB, "consumerGroup")),
    Request(Code.POLLING_INFO, By.EVERY, on_named(GET, "consumerGroup")),
    Request(Code.ACK_MESSAGE, By.LEADER, consuming(SUB)),
    Request(Code.BATCH_ACK_MESSAGE, By.LEADER, acknowledging_many),
    Request(Code.CHANGE_MESSAGE_INVISIBLETIME, By.LEADER, consuming(SUB)),
    Request(Code.QUERY_CONSUMER_OFFSET, By.LEADER_OR_SLAVE, consuming(SUB_OR_GET), is_forwarded=True),
    Request(Code.UPDATE_CONSUMER_OFFSET, By.LEADER_OR_SLAVE, consuming(SUB_OR_UPDATE), is_forwarded=True),
    Request(Code.LOCK_BATCH_MQ, By.LEADER, locking),
    Request(Code.UNLOCK_BATCH_MQ, By.LEADER, locking),
    Request(Code.QUERY_ASSIGNMENT, By.EVERY, assigning),
    # clients
    Request(Code.HEART_BEAT, By.EVERY, heartbeat),
    Request(Code.UNREGISTER_CLIENT, By.EVERY, unregistering),
    Request(Code.CHECK_CLIENT_CONFIG, By.EVERY, every_user),
    Request(Code.GET_CONSUMER_LIST_BY_GROUP, By.EVERY, listing_members),
    Request(Code.GET_CONSUMER_CONNECTION_LIST, By.EVERY, on_named(GET, "consumerGroup", topic=False)),
    Request(Code.GET_PRODUCER_CONNECTION_LIST, By.EVERY, on_cluster(GET)),
    Request(Code.GET_ALL_PRODUCER_INFO, By.EVERY, on_cluster(GET)),
    # queues and stored messages
    Request(Code.GET_MAX_OFFSET, By.LEADER_OR_SLAVE, on_named(GET), is_forwarded=True),
    Request(Code.GET_MIN_OFFSET, By.LEADER_OR_SLAVE, on_named(GET), is_forwarded=True),
    Request(Code.SEARCH_OFFSET_BY_TIMESTAMP, By.LEADER_OR_SLAVE, on_named(GET), is_forwarded=True),
    Request(Code.GET_EARLIEST_MSG_STORETIME, By.EVERY, on_named(GET)),
    Request(Code.QUERY_MESSAGE, By.EVERY, querying_messages),
    Request(Code.VIEW_MESSAGE_BY_ID, By.EVERY, on_named(GET)),
    Request(Code.QUERY_CONSUME_QUEUE, By.EVERY, on_named(GET, "consumerGroup")),
    Request(Code.CONVERT_QUEUE, By.EVERY_BUT_SLAVE, converting),
    # topics
    Request(Code.UPDATE_AND_CREATE_TOPIC, By.OWNER, on_named(CREATE)),
    Request(Code.UPDATE_AND_CREATE_TOPIC_LIST, By.OWNER, on_cluster(UPDATE)),
    Request(Code.DELETE_TOPIC_IN_BROKER, By.OWNER, on_named(DELETE)),
    Request(Code.DELETE_TOPIC_IN_BROKER_LIST, By.OWNER, deleting_topics),
    Request(Code.CLEAN_UNUSED_TOPIC, By.OWNER, on_cluster(UPDATE)),
    Request(Code.GET_ALL_TOPIC_CONFIG, By.EVERY, on_cluster(GET)),
    Request(Code.GET_TOPIC_CONFIG, By.EVERY, on_named(GET)),
    Request(Code.GET_TOPIC_STATS_INFO, By.EVERY, on_named(GET)),
    Request(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, By.EVERY, on_cluster(GET)),
    # consumer groups
    Request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, By.OWNER, on_cluster(UPDATE)),
    Request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, By.OWNER, on_cluster(UPDATE)),
    Request(Code.DELETE_SUBSCRIPTIONGROUP, By.OWNER, on_named(DELETE, "groupName", topic=False)),
    Request(Code.DELETE_SUBSCRIPTION_GROUP_LIST, By.OWNER, deleting_groups),
    Request(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, By.OWNER, on_named(UPDATE, "group")),
    Request(Code.SET_MESSAGE_REQUEST_MODE, By.OWNER, on_cluster(UPDATE)),
    Request(Code.INVOKE_BROKER_TO_RESET_OFFSET, By.OWNER, on_named(UPDATE, "group")),
    Request(Code.CLONE_GROUP_OFFSET, By.OWNER, cloning_offsets),
    Request(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, By.EVERY, on_cluster(GET)),
    Request(Code.GET_SUBSCRIPTIONGROUP_CONFIG, By.EVERY, on_named(GET, "group", topic=False)),
    Request(Code.GET_ALL_MESSAGE_REQUEST_MODE, By.EVERY, on_cluster(GET)),
    # progress of groups
    Request(Code.GET_CONSUME_STATS, By.EVERY, on_named(GET, "consumerGroup")),
    Request(Code.GET_BROKER_CONSUME_STATS, By.EVERY, on_cluster(GET)),
    Request(Code.QUERY_TOPIC_CONSUME_BY_WHO, By.EVERY, on_named(GET)),
    Request(Code.QUERY_TOPICS_BY_CONSUMER, By.EVERY, on_named(GET, "group", topic=False)),
    Request(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, By.EVERY, on_named(GET, "group")),
    Request(Code.QUERY_CONSUME_TIME_SPAN, By.EVERY, on_named(GET, "group")),
    Request(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, By.EVERY, on_named(GET, "group")),
    Request(Code.GET_CONSUMER_RUNNING_INFO, By.EVERY, on_named(GET, "consumerGroup", topic=False)),
    Request(Code.CONSUME_MESSAGE_DIRECTLY, By.EVERY, on_named(SUB, "consumerGroup")),
    # users and policies
    Request(Code.AUTH_CREATE_USER, By.LEADER, on_cluster(UPDATE)),
    Request(Code.AUTH_UPDATE_USER, By.LEADER, on_cluster(UPDATE)),
    Request(Code.AUTH_DELETE_USER, By.LEADER, on_cluster(UPDATE)),
    Request(Code.AUTH_GET_USER, By.EVERY, on_cluster(GET)),
    Request(Code.AUTH_LIST_USER, By.EVERY, on_cluster(GET)),
    Request(Code.AUTH_CREATE_ACL, By.LEADER, on_cluster(UPDATE)),
    Request(Code.AUTH_UPDATE_ACL, By.LEADER, on_cluster(UPDATE)),
    Request(Code.AUTH_DELETE_ACL, By.LEADER, on_cluster(UPDATE)),
    Request(Code.AUTH_GET_ACL, By.EVERY, on_cluster(GET)),
    Request(Code.AUTH_LIST_ACL, By.EVERY, on_cluster(GET)),
    # the broker itself
    Request(Code.UPDATE_BROKER_CONFIG, By.EVERY, on_cluster(UPDATE)),
    Request(Code.GET_BROKER_CONFIG, By.EVERY, on_cluster(GET)),
    Request(Code.GET_BROKER_RUNTIME_INFO, By.EVERY, on_cluster(GET)),
    Request(Code.VIEW_BROKER_STATS_DATA, By.EVERY, on_cluster(GET)),
    Request(Code.CLEAN_EXPIRED_CONSUMEQUEUE, By.EVERY, on_cluster(UPDATE)),
    Request(Code.DELETE_EXPIRED_COMMITLOG, By.EVERY, on_cluster(UPDATE)),
    # other copies of the log
    Request(Code.GET_ALL_CONSUMER_OFFSET, By.EVERY, on_cluster(GET)),
    Request(Code.GET_ALL_DELAY_OFFSET, By.EVERY, on_cluster(GET)),
    Request(Code.GET_TIMER_CHECK_POINT, By.EVERY, on_cluster(GET)),
    Request(Code.GET_TIMER_METRICS, By.EVERY, on_cluster(GET)),
    Request(Code.EXCHANGE_BROKER_HA_INFO, By.EVERY, on_cluster(GET)),
    Request(Code.GET_BROKER_HA_STATUS, By.EVERY, on_cluster(GET)),
    Request(Code.COMPARE_LOG, By.EVERY, on_cluster(GET)),
    Request(Code.READ_LOG_RANGE, By.EVERY, on_cluster(UPDATE)),
    Request(Code.PROMOTE, By.EVERY, on_cluster(UPDATE)),
    Request(Code.DESCRIBE_REPLICATION, By.EVERY, on_cluster(GET)),
    Request(Code.TRANSFER_LEADERSHIP, By.EVERY, on_cluster(UPDATE)),
    Request(Code.CHANGE_MEMBERS, By.EVERY, on_cluster(UPDATE)),
    # controllers
    Request(Code.CONTROLLER_ELECT_MASTER, By.EVERY, on_cluster(UPDATE)),
    Request(Code.CONTROLLER_GET_METADATA_INFO, By.EVERY, on_cluster(GET)),
    Request(Code.CONTROLLER_GET_SYNC_STATE_DATA, By.EVERY, on_cluster(GET)),
    Request(Code.GET_BROKER_EPOCH_CACHE, By.EVERY, on_cluster(GET)),
    Request(Code.UPDATE_CONTROLLER_CONFIG, By.EVERY, on_cluster(UPDATE)),
    Request(Code.GET_CONTROLLER_CONFIG, By.EVERY, on_cluster(GET)),
    Request(Code.CLEAN_BROKER_DATA, By.EVERY, on_cluster(UPDATE)),
)

REQUESTS: dict[int, Request] = {int(request.code): request for request in _DECLARED}


def codes_with(condition: Callable[[Request], bool]) -> frozenset[int]:
    """Return the codes of the requests whose declaration meets the condition."""
    return frozenset(code for code, request in REQUESTS.items() if condition(request))


def permission_resolver(cluster: str) -> PermissionResolver:
    """Return the function that determines the required permissions of requests to a broker of ``cluster``."""
    return partial(permissions_of, cluster=cluster)


_UNKNOWN = on_cluster(UPDATE)


def permissions_of(request: RemotingCommand, cluster: str) -> list[RequiredPermission]:
    """Return all permissions that ``request`` requires. The list is empty if every user may send the request.

    Raises:
        ProtocolError: the body with the names of the resources cannot be decoded.
    """
    declared = REQUESTS.get(request.code)
    return (_UNKNOWN if declared is None else declared.rule)(request, cluster)
