"""Requests and services that depend on the role of a broker: leader, follower, master, slave, or a broker alone.

A broker without replication needs this module, too. It therefore imports nothing of the replication.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from raptormq.protocol.bodies.replication import UNREPLICATED, ReplicationState
from raptormq.protocol.codes import RequestCode
from raptormq.storage.store import MessageStore

ConfirmLeadership = Callable[[], Awaitable[None]]
"""Waits until a majority of the Dledger group has confirmed that this member leads. Raises NotLeader if it does not, or
if it has ceased to lead since the call, even if it leads again. See
:meth:`~raptormq.broker.replication.Replication.confirm_leadership`.
"""

TABLE_CHANGES = frozenset(
    {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)
"""Changes of topics, groups, request modes and offsets."""

LEADER_ONLY = TABLE_CHANGES | frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_QUEUE_BATCHES,
        RequestCode.STAGE_BATCH,
        RequestCode.COMMIT_STAGED,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.RECALL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""Requests that only the leader of a group or a master handles."""

OFFSET_QUERIES = frozenset(
    {
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    }
)
"""Queries that a follower of a group refuses and a slave answers. Consumers continue with a slave while there is no
master, but a group soon has another leader.
"""


@dataclass(frozen=True, slots=True)
class LeaderWork:
    """Callbacks that start and stop the services of a leader and register the broker."""

    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]
    register: Callable[[int], None]
    """Registers the broker under this broker id, and notifies the running services of the change of role."""


def unreplicated(broker_name: str, store: MessageStore, address: str) -> ReplicationState:
    """Return the status of a broker without replication."""
    end = store.end_offset
    return ReplicationState(broker_name, UNREPLICATED, "", "leader", 0, "", store.confirmed_offset, end, address)
