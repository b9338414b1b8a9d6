"""Requests that only the leader handles. A follower refuses them with SERVICE_NOT_AVAILABLE (14), which clients retry.

Pulls are not refused: like a slave of Apache RocketMQ, a follower serves confirmed messages, so a consumer whose route
is older than the last change of the leader continues. The queues of a follower may end before those of the leader. A
follower therefore never resets a consumer to another offset, and only the leader returns the bounds of a queue and
committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.errors import NotLeader
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.router import TAKEN, Answer, Guard, Taken, failure

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
    }
)
"""Changes of topics, groups and offsets."""

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


def leader_only(
    not_leader: Callable[[], NotLeader | None],
    accept: Callable[[Connection, RemotingCommand], bool],
) -> Guard:
    """Return a guard that refuses the requests of :data:`LEADER_ONLY` on a follower.

    Args:
        not_leader: returns the reason for a refusal, or None while this member leads.
        accept: returns True if it takes over the request in order to forward it to the next leader.
    """

    def refusal(connection: Connection, request: RemotingCommand) -> Answer | Taken:
        if accept(connection, request):
            return TAKEN
        is_refused = request.code in LEADER_ONLY or request.code in OFFSET_QUERIES
        if is_refused and (reason := not_leader()) is not None:
            return failure(request, reason)
        return None

    return refusal
