"""What only the leader of a group does: a follower refuses it with SERVICE_NOT_AVAILABLE (14), which clients retry.

Reads are not among it. A follower serves what is confirmed, as a slave of Apache RocketMQ does: a consumer whose route
is older than the last change of the leader goes on. Its commits of offsets are refused until it knows the leader.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.errors import NotLeader
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.router import Guard, failure

LEADER_ONLY = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_QUEUE_BATCHES,
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
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)


def leader_only(not_leader: Callable[[], NotLeader | None], guard: Guard | None) -> Guard:
    """Return a guard that refuses what a follower does not do, after ``guard``, which may be None.

    ``not_leader`` returns the reason, None while this member leads.
    """

    def refusal(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if guard is not None and (refused := guard(connection, request)) is not None:
            return refused
        if request.code in LEADER_ONLY and (reason := not_leader()) is not None:
            return failure(request, reason)
        return None

    return refusal
