"""PEEK_MESSAGE (200052): reads the messages that a group would pop next without popping them
(``PeekMessageProcessor``).
"""

from __future__ import annotations

from raptormq.broker.pop.pop_service import PopService
from raptormq.broker.pop.request_validator import PopRequestValidator
from raptormq.protocol.bodies.pop import MAX_POPPED
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.pop import PeekMessageRequestHeader, PopMessageResponseHeader
from raptormq.transport.connection import Connection
from raptormq.transport.memory import Reading
from raptormq.transport.router import Router


class PeekHandlers:
    """Returns the messages that a pop would return, without popping them."""

    def __init__(self, pop_service: PopService, validator: PopRequestValidator) -> None:
        self._pop_service = pop_service
        self._validator = validator

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader, self.peek)

    async def peek(
        self, connection: Connection, command: RemotingCommand, header: PeekMessageRequestHeader
    ) -> RemotingCommand | None:
        """200052: return messages in their stored form, or code 19 if there are none."""
        self._validator.require_readable(connection, header.topic, header.queue_id, header.consumer_group)
        await self._pop_service.loaded()
        await connection.drained()
        limit = min(max(header.max_msg_nums, 1), MAX_POPPED)
        with Reading(connection.answers, connection) as reading:
            group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
            records, remaining = await self._pop_service.peek(group, topic, queue_id, limit, reading)
            answer = PopMessageResponseHeader(0, 0, 0, remaining)
            if not records:
                return response_to(command, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", answer)
            if not command.is_oneway:
                connection.send(response_to(command, ResponseCode.SUCCESS, "FOUND", answer), *records)
        return None
