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

from raptormq.broker.requests import REQUESTS
from raptormq.errors import NotLeader
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Guard, Taken

_REFUSED = {code: slave_code for code, each in REQUESTS.items() if (slave_code := each.answered_by.slave_code)}
"""Response code by request code."""


def master_only(not_master: Callable[[], NotLeader | None]) -> Guard:
    """Return a guard that refuses the requests of a master on a slave.

    Args:
        not_master: returns the reason for a refusal, or None once this broker is the master.
    """

    def refusal(connection: Connection, request: RemotingCommand) -> Answer | Taken:
        code = _REFUSED.get(request.code)
        if code is None or (reason := not_master()) is None:
            return None
        return response_to(request, code, str(reason))

    return refusal
