"""Requests that only the leader handles. A follower refuses them with SERVICE_NOT_AVAILABLE (14), which clients retry.

Pulls are not refused: like a slave of Apache RocketMQ, a follower serves confirmed messages, so a consumer whose route
is older than the last change of the leader continues. The queues of a follower may end before those of the leader. A
follower therefore never resets a consumer to another offset, and only the leader returns the bounds of a queue and
committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.requests import codes_with
from raptormq.errors import NotLeader
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.router import TAKEN, Answer, Guard, Taken, failure

_REFUSED = codes_with(lambda request: not request.answered_by.follower)


def leader_only(
    not_serving: Callable[[], NotLeader | None],
    accept: Callable[[Connection, RemotingCommand], bool],
) -> Guard:
    """Return a guard that refuses the requests that a follower does not answer.

    Args:
        not_serving: returns the reason for a refusal, or None while this member serves as the leader.
        accept: returns True if it takes over the request in order to forward it to the next leader.
    """

    def refusal(connection: Connection, request: RemotingCommand) -> Answer | Taken:
        if accept(connection, request):
            return TAKEN
        if request.code in _REFUSED and (reason := not_serving()) is not None:
            return failure(request, reason)
        return None

    return refusal
