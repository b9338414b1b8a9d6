"""From request code to handler: the one table of a server.

A handler is a small function ``(connection, request, header) -> response``; it may return ``None`` (answered
elsewhere, or later) or an awaitable; requests that come behind wait for it when it is :class:`InOrder`. A *group*
handler takes all consecutive requests of its codes that one read brought. What a handler raises becomes the answer:
:class:`Refused` its code and remark, our own errors the code that fits, anything else code 1 and a line in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from raptormq.errors import MessageError, ProtocolError, RaptorMQError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.frame import MAX_FRAME_BYTES
from raptormq.protocol.schema import Header, decode_header
from raptormq.transport.connection import Connection

logger = get_logger(__name__)

SINGLES_AT_A_TIME = 64
"""Requests of one read that are handled before other connections have their turn; a read may bring thousands."""
MAX_ANSWER_BYTES = MAX_FRAME_BYTES - 65_536
"""What fits a frame beside its header; clients end a connection that brings them a larger one."""

Answer = RemotingCommand | None


@dataclass(frozen=True, slots=True)
class InOrder:
    """What a handler returns that works in turns with other connections, but must not be overtaken on its own."""

    work: Coroutine[Any, Any, Answer | Awaitable[Answer]]
    """No later request of the connection begins before its end; what it returns may be awaited by then."""


Handler = Callable[[Connection, RemotingCommand, Any], Answer | Awaitable[Answer] | InOrder]
GroupHandler = Callable[[Connection, list[RemotingCommand]], None]
Guard = Callable[[Connection, RemotingCommand], Answer]


class Refused(RaptorMQError):
    """A handler's answer to a request that it will not carry out."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code


class Router:
    """Implements :class:`~raptormq.transport.connection.RequestHandler` with a table of handlers."""

    def __init__(self) -> None:
        self._handlers: dict[int, tuple[type[Header] | None, Handler]] = {}
        self._groups: dict[int, GroupHandler] = {}
        self._on_closed: list[Callable[[Connection], None]] = []
        self._tasks: set[asyncio.Future[Any]] = set()
        self._behind: dict[Connection, list[RemotingCommand]] = {}
        """Connections that are not read from, and which of their requests wait."""
        self._guard: Guard | None = None

    def guard(self, guard: Guard | None) -> None:
        """Ask ``guard`` before any handler; what it returns is the answer, None lets the request pass."""
        self._guard = guard

    def add(self, code: int, header: type[Header] | None, handler: Handler) -> None:
        """Register ``handler`` for ``code``; its third argument is the decoded ``header``, or ``None`` where there is
        none.
        """
        if code in self._handlers or code in self._groups:
            raise ValueError(f"code {code} has a handler already")
        self._handlers[code] = header, handler

    def add_group(self, codes: set[int], handler: GroupHandler) -> None:
        """Register a handler that takes runs of requests; it answers each of them itself and must not raise."""
        for code in codes:
            if code in self._handlers or code in self._groups:
                raise ValueError(f"code {code} has a handler already")
            self._groups[code] = handler

    def on_closed(self, callback: Callable[[Connection], None]) -> None:
        """Call ``callback`` for every connection that ends."""
        self._on_closed.append(callback)

    def closed(self, connection: Connection) -> None:
        """Tell everyone who asked (RequestHandler)."""
        for callback in self._on_closed:
            callback(connection)

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Dispatch in order, runs of a group's codes together (RequestHandler)."""
        if self._guard is not None:
            requests = self._admitted(self._guard, connection, requests)
        if self._behind and connection in self._behind:  # TLS may have had more at hand when reading was stopped
            self._behind[connection] += requests
        else:
            self._handle_admitted(connection, requests)

    def _handle_admitted(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        groups = self._groups
        index, count, singles = 0, len(requests), 0
        while index < count:
            request = requests[index]
            group = groups.get(request.code)
            if group is None:
                if singles == SINGLES_AT_A_TIME:
                    self._hold(connection)
                    self._behind[connection] += requests[index:]
                    self._spawn(self._handle_rest(connection))
                    return
                singles += 1
                index += 1
                self._dispatch(connection, request)
                if self._behind and connection in self._behind:
                    self._behind[connection] += requests[index:]
                    return
                continue
            stop = index + 1
            while stop < count and groups.get(requests[stop].code) is group:
                stop += 1
            group(connection, requests[index:stop] if stop - index < count else requests)
            index = stop

    @staticmethod
    def _admitted(guard: Guard, connection: Connection, requests: list[RemotingCommand]) -> list[RemotingCommand]:
        admitted: list[RemotingCommand] = []
        for request in requests:
            refusal = guard(connection, request)
            if refusal is None:
                admitted.append(request)
            else:
                answer(connection, request, refusal)
        return admitted

    def _hold(self, connection: Connection) -> None:
        """Let what comes by ``connection`` wait until :meth:`_go_on`."""
        self._behind[connection] = []
        connection.hold_reading(hold=True)

    def _go_on(self, connection: Connection) -> None:
        requests = self._behind.pop(connection)
        connection.hold_reading(hold=False)
        self._handle_admitted(connection, requests)

    async def _handle_rest(self, connection: Connection) -> None:
        await asyncio.sleep(0)
        self._go_on(connection)

    def _dispatch(self, connection: Connection, request: RemotingCommand) -> None:
        if connection.is_held_back and not request.is_oneway:
            self._spawn(self._dispatch_when_drained(connection, request))
            return
        entry = self._handlers.get(request.code)
        if entry is None:
            remark = f" request type {request.code} not supported"  # the blank is RocketMQ's
            answer(connection, request, response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        header_class, handler = entry
        try:
            header = decode_header(header_class, request.ext_fields) if header_class is not None else None
            result = handler(connection, request, header)
        except Exception as error:  # noqa: BLE001 - the peer must get an answer whatever happens
            answer(connection, request, failure(request, error))
            return
        if isinstance(result, RemotingCommand):
            answer(connection, request, result)
        elif isinstance(result, InOrder):
            self._hold(connection)
            self._spawn(self._finish_first(connection, request, result.work))
        elif result is not None:
            self._spawn(self._finish(connection, request, result))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dispatch_when_drained(self, connection: Connection, request: RemotingCommand) -> None:
        """One read may bring requests for gigabytes: no answer is made before the peer has taken those before it."""
        await connection.drained()
        if connection in self._behind:
            self._behind[connection].append(request)
        elif not connection.is_closed:
            self._dispatch(connection, request)

    async def _finish_first(
        self, connection: Connection, request: RemotingCommand, work: Coroutine[Any, Any, Answer | Awaitable[Answer]]
    ) -> None:
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - the peer must get an answer whatever happens
            result = failure(request, error)
        if result is None or isinstance(result, RemotingCommand):
            answer(connection, request, result)
        else:
            self._spawn(self._finish(connection, request, result))
        self._go_on(connection)

    async def _finish(self, connection: Connection, request: RemotingCommand, result: Awaitable[Answer]) -> None:
        try:
            if connection.is_held_back:
                await connection.drained()
            response = await result
        except asyncio.CancelledError:
            if isinstance(result, Coroutine):
                result.close()  # it may not have begun
            raise
        except Exception as error:  # noqa: BLE001 - the peer must get an answer whatever happens
            response = failure(request, error)
        answer(connection, request, response)

    async def stop(self) -> None:
        """Cancel the handlers that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(connection: Connection, request: RemotingCommand, response: Answer) -> None:
    """Send ``response`` unless there is none or the request was oneway; one that no peer could read is refused."""
    if response is not None and not request.is_oneway:
        if len(response.body) > MAX_ANSWER_BYTES:
            remark = f"the answer has {len(response.body)} bytes, more than {MAX_ANSWER_BYTES}: ask for less at a time"
            response = response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        connection.send(response)


def failure(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """Return the response that tells of ``error``."""
    if isinstance(error, Refused):
        code = error.code
    elif isinstance(error, MessageError):
        code = ResponseCode.MESSAGE_ILLEGAL
    elif isinstance(error, StorageError):
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        if type(error) is StorageError:  # a disk that cannot read; of its kinds the write gate tells
            logger.error("request code %s failed: %s", request.code, error)
    else:
        code = ResponseCode.SYSTEM_ERROR
        if not isinstance(error, ProtocolError):
            logger.error("request code %s failed", request.code, exc_info=error)
            return response_to(request, code, f"internal error: {type(error).__name__}: {error}")
    return response_to(request, code, str(error))
