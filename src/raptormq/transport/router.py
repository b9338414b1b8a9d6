"""The request router of a server: maps request codes to handlers.

A handler is a function ``(connection, request, header) -> response``. It may return an awaitable, or None if the
response is sent elsewhere or later. If it returns :class:`SequentialTask`, later requests of the connection wait until
the task ends. A *batch handler* is called once with all consecutive requests of its codes that arrived in one read. An
exception raised by a handler becomes the response: :class:`Refused` sets code and remark, a
:class:`~raptormq.errors.RaptorMQError` maps to a code, and any other exception is logged and answered with code 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
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
"""Maximum requests of one read that are handled before other connections are served. A read may contain thousands."""
MAX_ANSWER_BYTES = MAX_FRAME_BYTES - 65_536
"""Maximum size of a response body in bytes. The rest of the frame limit is reserved for the header, because clients
close the connection on a larger frame."""

Answer = RemotingCommand | None


@dataclass(frozen=True, slots=True)
class SequentialTask:
    """Returned by a handler whose work runs as a task. Later requests on the same connection wait for it."""

    work: Coroutine[Any, Any, Answer | Awaitable[Answer]]
    """The task. Later requests of the connection are handled after it ends. They do not wait for an awaitable that the
    task returns.
    """


Handler = Callable[[Connection, RemotingCommand, Any], Answer | Awaitable[Answer] | SequentialTask]
BatchHandler = Callable[[Connection, list[RemotingCommand]], None]


class Taken(Enum):
    """Result of a guard that handles the request and sends the response itself."""

    TAKEN = "taken"


TAKEN = Taken.TAKEN
Guard = Callable[[Connection, RemotingCommand], Answer | Taken]


class Refused(RaptorMQError):
    """Raised by a handler to refuse a request with a response code and a remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code


class Router:
    """Implements :class:`~raptormq.transport.connection.RequestHandler` with a table of handlers."""

    def __init__(self) -> None:
        self._handlers: dict[int, tuple[type[Header] | None, Handler]] = {}
        self._batch_handlers: dict[int, BatchHandler] = {}
        self._on_closed: list[Callable[[Connection], None]] = []
        self._tasks: set[asyncio.Future[Any]] = set()
        self._behind: dict[Connection, list[RemotingCommand]] = {}
        """Connections whose reading is paused, with their waiting requests."""
        self._guards: list[Guard] = []

    def add_guard(self, guard: Guard) -> None:
        """Add a guard, which is called before any handler and after the guards that were added before. It returns a
        response to refuse the request, None to admit it, or TAKEN if it handles the request itself.
        """
        self._guards.append(guard)

    def add(self, code: int, header: type[Header] | None, handler: Handler) -> None:
        """Register ``handler`` for ``code``. Its third argument is the request header, decoded as ``header``; None
        without a header class.

        Raises:
            ValueError: the code already has a handler.
        """
        if code in self._handlers or code in self._batch_handlers:
            raise ValueError(f"code {code} already has a handler")
        self._handlers[code] = header, handler

    def add_batch_handler(self, codes: set[int], handler: BatchHandler) -> None:
        """Register a handler for batches of requests. It sends the responses itself and must not raise.

        Raises:
            ValueError: a code already has a handler.
        """
        for code in codes:
            if code in self._handlers or code in self._batch_handlers:
                raise ValueError(f"code {code} already has a handler")
            self._batch_handlers[code] = handler

    def on_closed(self, callback: Callable[[Connection], None]) -> None:
        """Register a callback for the end of each connection."""
        self._on_closed.append(callback)

    def closed(self, connection: Connection) -> None:
        """Call the registered callbacks (RequestHandler)."""
        for callback in self._on_closed:
            callback(connection)

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Dispatch the requests of one read in order (RequestHandler)."""
        if self._guards:
            requests = self._admitted(connection, requests)
        self.handle_admitted(connection, requests)

    def handle_admitted(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Dispatch requests that the guards have admitted, or that a guard has taken and admits now."""
        if self._behind and connection in self._behind:  # TLS may deliver buffered data after reading was paused
            self._behind[connection] += requests
        else:
            self._handle_admitted(connection, requests)

    def _handle_admitted(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        batch_handlers = self._batch_handlers
        index, count, singles = 0, len(requests), 0
        while index < count:
            request = requests[index]
            batch_handler = batch_handlers.get(request.code)
            if batch_handler is None:
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
            while stop < count and batch_handlers.get(requests[stop].code) is batch_handler:
                stop += 1
            batch_handler(connection, requests[index:stop] if stop - index < count else requests)
            index = stop

    def _admitted(self, connection: Connection, requests: list[RemotingCommand]) -> list[RemotingCommand]:
        admitted: list[RemotingCommand] = []
        for request in requests:
            for guard in self._guards:
                if (refusal := guard(connection, request)) is not None:
                    if not isinstance(refusal, Taken):
                        answer(connection, request, refusal)
                    break
            else:
                admitted.append(request)
        return admitted

    def _hold(self, connection: Connection) -> None:
        """Pause reading, and queue requests of ``connection`` until :meth:`_go_on`."""
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
        except Exception as error:  # noqa: BLE001 - the peer must get a response whatever happens
            answer(connection, request, failure(request, error))
            return
        if isinstance(result, RemotingCommand):
            answer(connection, request, result)
        elif isinstance(result, SequentialTask):
            self._hold(connection)
            self._spawn(self._finish_first(connection, request, result.work))
        elif result is not None:
            self._spawn(self._finish(connection, request, result))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dispatch_when_drained(self, connection: Connection, request: RemotingCommand) -> None:
        """Handle a request once the peer has read earlier responses. The requests of one read may ask for gigabytes of
        responses."""
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
        except Exception as error:  # noqa: BLE001 - the peer must get a response whatever happens
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
                result.close()  # prevents the warning about a coroutine that was never awaited
            raise
        except Exception as error:  # noqa: BLE001 - the peer must get a response whatever happens
            response = failure(request, error)
        answer(connection, request, response)

    async def stop(self, timeout: float | None = None) -> int:
        """Cancel all running handlers, and wait up to `timeout` seconds for their end. Return how many are still
        running, because code of the application may ignore the cancellation.
        """
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return len((await asyncio.wait(tasks, timeout=timeout))[1]) if tasks else 0


def answer(connection: Connection, request: RemotingCommand, response: Answer) -> None:
    """Send ``response``, unless it is None or the request is oneway. A response that exceeds the frame limit is
    replaced by an error.
    """
    if response is not None and not request.is_oneway:
        if len(response.body) > MAX_ANSWER_BYTES:
            remark = (
                f"the response has {len(response.body)} bytes, more than {MAX_ANSWER_BYTES}: request less at a time"
            )
            response = response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        connection.send(response)


def failure(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """Return the error response for ``error``."""
    if isinstance(error, Refused):
        code = error.code
    elif isinstance(error, MessageError):
        code = ResponseCode.MESSAGE_ILLEGAL
    elif isinstance(error, StorageError):
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        if type(error) is StorageError:  # an error of a read; the write gate logs the subclasses
            logger.error("request code %s failed: %s", request.code, error)
    else:
        code = ResponseCode.SYSTEM_ERROR
        if not isinstance(error, ProtocolError):
            logger.error("request code %s failed", request.code, exc_info=error)
            return response_to(request, code, f"internal error: {type(error).__name__}: {error}")
    return response_to(request, code, str(error))
