"""Answers with an error code as exceptions. Neighbours: everything here that sends requests."""

from __future__ import annotations

from raptormq.errors import ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand


def require_success(answer: RemotingCommand, peer: str) -> RemotingCommand:
    """Return the answer itself when its code is 0.

    Raises:
        ServerError: any other code, with the peer's remark.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise ServerError(answer.code, answer.remark, peer)
    return answer
