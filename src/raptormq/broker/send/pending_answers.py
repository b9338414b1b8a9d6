"""Answers to sends that wait until the store confirms what was appended (Apache RocketMQ ``GroupCommitService``).

A group of sends whose records are confirmed at once is answered at once. Any other group waits with one callback and
one timer; no message has a future of its own.
"""

from __future__ import annotations

import asyncio

from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.answers import SendAnswers
from raptormq.errors import NotLeader, StorageError
from raptormq.protocol.codes import ResponseCode
from raptormq.storage.queue import Appended
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

MAX_PENDING_GROUPS = 20_000
"""Groups that wait at a time; beyond it sends are refused as "busy", for a disk that has stopped answering."""


class PendingAnswers:
    """Answers groups of sends when the store has confirmed them, or after ``timeout_s``."""

    def __init__(
        self, store: MessageStore, answers: SendAnswers, timeout_s: float, *, is_replicated: bool = False
    ) -> None:
        """In a group (``is_replicated``) requests with WAIT=false wait, too: what the leader alone has may be lost."""
        self._store = store
        self._answers = answers
        self._timeout_s = timeout_s
        self._waits_always = is_replicated
        self._too_late = (
            (ResponseCode.FLUSH_SLAVE_TIMEOUT, "stored, but a majority of the group does not have it yet")
            if is_replicated
            else (ResponseCode.FLUSH_DISK_TIMEOUT, "stored, but not on disk within syncFlushTimeout")
        )
        self._count = 0

    @property
    def is_full(self) -> bool:
        """True while no more groups may wait."""
        return self._count >= MAX_PENDING_GROUPS

    def answer(self, connection: Connection, admitted: list[AcceptedSend], result: Appended) -> None:
        """Answer a stored group when it is confirmed; a request with WAIT=false is answered at once."""
        if result.end_offset <= self._store.confirmed_offset:
            connection.send_raw(self._answers.encode_group(admitted, result, 0))
        else:
            self._answer_later(connection, admitted, result)

    def _answer_later(self, connection: Connection, admitted: list[AcceptedSend], result: Appended) -> None:
        waiting = admitted if self._waits_always else [entry for entry in admitted if entry.wait]
        if len(waiting) < len(admitted):
            connection.send_raw(self._answers.encode_group(admitted, result, 0, waiting=False))
        if waiting:
            self._count += 1
            picked = None if self._waits_always else True
            group = _PendingGroup(connection, admitted, result, self._answers, picked, self._too_late)
            group.timer = asyncio.get_running_loop().call_later(self._timeout_s, group.timed_out)

            def confirmed(error: StorageError | None) -> None:
                self._count -= 1
                group.confirmed(error)

            self._store.on_confirmed(result.end_offset, confirmed)

    async def wait(self, end_offset: int) -> int:
        """Return the response code once everything below ``end_offset`` is confirmed: 0, or 10 when that takes longer
        than the time-out or will never be; 12 instead of 10 in a group.

        Raises:
            NotLeader: this member of the group no longer leads: it may be there, and it may be lost.
        """
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        self._count += 1

        def confirmed(error: StorageError | None) -> None:
            self._count -= 1
            if not done.done():
                done.set_result(error)

        self._store.on_confirmed(end_offset, confirmed)
        try:
            async with asyncio.timeout(self._timeout_s):
                error = await done
        except TimeoutError:
            return self._too_late[0]
        if isinstance(error, NotLeader):
            raise error
        return ResponseCode.SUCCESS if error is None else ResponseCode.FLUSH_DISK_TIMEOUT


class _PendingGroup:
    """One group; it is answered once, by the store or by the timer, whichever comes first."""

    __slots__ = ("_admitted", "_answers", "_connection", "_result", "_too_late", "_waiting", "timer")

    def __init__(
        self,
        connection: Connection,
        admitted: list[AcceptedSend],
        result: Appended,
        answers: SendAnswers,
        waiting: bool | None,
        too_late: tuple[ResponseCode, str],
    ) -> None:
        self._waiting = waiting
        self._too_late = too_late
        self._connection = connection
        self._admitted = admitted
        self._result = result
        self._answers = answers
        self.timer: asyncio.TimerHandle | None = None

    def confirmed(self, error: StorageError | None) -> None:
        """The group is confirmed or, with ``error``, never will be."""
        if self.timer is None:
            return
        self.timer.cancel()
        self.timer = None
        if error is None:
            self._answer(ResponseCode.SUCCESS, "")
        elif isinstance(error, NotLeader):  # it may be lost: the producer sends it again
            self._answer(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        else:
            self._answer(ResponseCode.FLUSH_DISK_TIMEOUT, f"stored, but not on disk: {error}")

    def timed_out(self) -> None:
        """The group is not confirmed in time."""
        self.timer = None
        self._answer(*self._too_late)

    def _answer(self, code: int, remark: str) -> None:
        frames = self._answers.encode_group(self._admitted, self._result, int(code), remark, waiting=self._waiting)
        if frames:
            self._connection.send_raw(frames)
