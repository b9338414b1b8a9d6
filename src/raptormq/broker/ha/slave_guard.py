"""Requests that a slave refuses, with the response codes of Apache RocketMQ.

=======================================  =====================================================
messages, pops, locks                    SERVICE_NOT_AVAILABLE (14), which clients retry
END_TRANSACTION, RECALL_MESSAGE          SLAVE_NOT_AVAILABLE (11)
changes of topics, groups and offsets    SYSTEM_ERROR (1)
=======================================  =====================================================

A slave accepts offset commits, because consumers send them to it while the master is down. It hands them over when the
master responds again (:mod:`~raptormq.broker.ha.accepted_commits`).
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.roles import LEADER_ONLY, TABLE_CHANGES
from raptormq.errors import NotLeader
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Guard, Taken, failure

_DECISIONS = frozenset({RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE})
_CHANGES = TABLE_CHANGES | {RequestCode.CONVERT_QUEUE}
_REFUSED = (LEADER_ONLY | _DECISIONS | _CHANGES) - {RequestCode.UPDATE_CONSUMER_OFFSET}


def master_only(not_master: Callable[[], NotLeader | None]) -> Guard:
    """Return a guard that refuses the requests of a master on a slave.

    Args:
        not_master: returns the reason for a refusal, or None once this broker is the master.
    """

    def refusal(connection: Connection, request: RemotingCommand) -> Answer | Taken:
        if request.code not in _REFUSED or (reason := not_master()) is None:
            return None
        if request.code in _DECISIONS:
            return response_to(request, ResponseCode.SLAVE_NOT_AVAILABLE, str(reason))
        if request.code in _CHANGES:
            return response_to(request, ResponseCode.SYSTEM_ERROR, str(reason))
        return failure(request, reason)

    return refusal
