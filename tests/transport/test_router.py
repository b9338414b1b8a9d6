"""Requests that are handled cooperatively, and later requests of the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from raptormq.errors import StorageError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.router import SINGLES_AT_A_TIME, Answer, Router, SequentialTask

LONG, SHORT, GROUPED, LATE = 1, 2, 3, 4


class Recorded(Connection):
    """Records calls instead of executing them."""

    def __init__(self, router: Router) -> None:
        super().__init__(router)
        self.sent: list[RemotingCommand] = []
        self.is_read = True

    def hold_reading(self, *, hold: bool) -> None:
        self.is_read = not hold

    def send(self, message: RemotingCommand, *_: object) -> None:
        self.sent.append(message)


class Handlers:
    """A long request ends when ``released`` is set. ``begun`` has the codes in the order in which they were started."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.released = asyncio.Event()
        self.flushed = asyncio.Event()
        self.error: Exception | None = None
        self.router = Router()
        self.router.add(LONG, None, self._long)
        self.router.add(LATE, None, self._late)
        self.router.add(SHORT, None, self._short)
        self.router.add_batch_handler({GROUPED}, lambda _, asked: self.begun.extend(each.code for each in asked))

    def _short(self, _: Connection, asked: RemotingCommand, __: None) -> RemotingCommand:
        self.begun.append(asked.code)
        return response_to(asked)

    def _long(self, _: Connection, asked: RemotingCommand, __: None) -> SequentialTask:
        self.begun.append(asked.code)
        return SequentialTask(self._work(asked))

    def _late(self, _: Connection, asked: RemotingCommand, __: None) -> SequentialTask:
        return SequentialTask(self._begin_to_wait(asked))

    async def _work(self, asked: RemotingCommand) -> Answer:
        await self.released.wait()
        if self.error is not None:
            raise self.error
        return response_to(asked)

    async def _begin_to_wait(self, asked: RemotingCommand) -> Answer | Awaitable[Answer]:
        self.begun.append(asked.code)
        return self._when_flushed(asked)

    async def _when_flushed(self, asked: RemotingCommand) -> Answer:
        await self.flushed.wait()
        return response_to(asked)


async def settled(connection: Recorded, answers: int) -> None:
    while len(connection.sent) < answers:
        await asyncio.sleep(0)


async def test_nothing_of_its_connection_overtakes_a_request_that_is_worked_off_in_turns() -> None:
    handlers = Handlers()
    router, connection, other = handlers.router, Recorded(handlers.router), Recorded(handlers.router)
    router.handle(connection, [request(SHORT), request(LONG), request(GROUPED), request(SHORT)])
    router.handle(connection, [request(GROUPED)])  # had already been read
    await asyncio.sleep(0)
    assert (handlers.begun, connection.is_read) == ([SHORT, LONG], False)
    router.handle(other, [request(SHORT)])
    assert (len(other.sent), other.is_read) == (1, True)
    handlers.released.set()
    await settled(connection, 3)
    assert handlers.begun == [SHORT, LONG, SHORT, GROUPED, SHORT, GROUPED]
    assert connection.is_read
    await router.stop()


async def test_one_waits_behind_another_and_behind_the_many_of_one_read() -> None:
    handlers = Handlers()
    router, connection = handlers.router, Recorded(handlers.router)
    router.handle(connection, [*[request(SHORT)] * SINGLES_AT_A_TIME, request(LONG), request(LONG), request(GROUPED)])
    router.handle(connection, [request(SHORT)])
    handlers.released.set()
    await settled(connection, SINGLES_AT_A_TIME + 3)
    assert handlers.begun[SINGLES_AT_A_TIME:] == [LONG, LONG, GROUPED, SHORT]
    assert connection.is_read
    await router.stop()


async def test_what_is_left_to_wait_for_holds_nobody_up() -> None:
    handlers = Handlers()
    router, connection = handlers.router, Recorded(handlers.router)
    router.handle(connection, [request(LATE), request(SHORT)])
    await settled(connection, 1)
    assert handlers.begun == [LATE, SHORT]
    handlers.flushed.set()
    await settled(connection, 2)
    await router.stop()


@pytest.mark.parametrize(
    ("error", "code"),
    [(StorageError("full"), ResponseCode.SERVICE_NOT_AVAILABLE), (ValueError("a fault"), ResponseCode.SYSTEM_ERROR)],
)
async def test_one_that_fails_is_answered_and_the_next_one_begins(error: Exception, code: int) -> None:
    handlers = Handlers()
    router, connection = handlers.router, Recorded(handlers.router)
    handlers.error = error
    handlers.released.set()
    router.handle(connection, [request(LONG), request(SHORT)])
    await settled(connection, 2)
    assert [each.code for each in connection.sent] == [code, 0]
    await router.stop()


async def test_one_that_never_ends_does_not_keep_a_server_from_stopping() -> None:
    handlers = Handlers()
    connection = Recorded(handlers.router)
    handlers.router.handle(connection, [request(LONG), request(SHORT)])
    await asyncio.sleep(0)
    await handlers.router.stop()
    assert connection.sent == []
