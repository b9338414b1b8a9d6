"""The group handler of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

All sends that one read brought become one append and one answer::

    requests --admit--> records --append (one vectored write)--> offsets --template--> one buffer of responses
                 `--> refusals                                      `--> dispatch, after the answers, in the same turn
                 of the loop

Under SYNC_FLUSH the answer waits for the flush that covers the group; a flush that takes too long is answered with
10: stored, not yet on disk. Producers that set WAIT=false do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from raptormq.broker.counters import Counters
from raptormq.broker.send.admission import Admission, Admitted
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.send.flush_wait import FlushWait
from raptormq.errors import RaptorMQError, StorageError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, encode
from raptormq.protocol.message_id import encode_host
from raptormq.storage.log_batch import AppendResult, PendingRecord
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router, failure

logger = logging.getLogger(__name__)

SEND_CODES = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


class Dispatching(Protocol):
    """What makes appended records visible to consumers."""

    def schedule(self) -> None:
        """Do so later in this turn of the loop."""


class SendGroups:
    """Handles groups of sends."""

    def __init__(
        self,
        store: MessageStore,
        admission: Admission,
        answers: SendAnswers,
        dispatching: Dispatching,
        counters: Counters,
        topics_saved: Callable[[], Awaitable[None]],
        flush_timeout_s: float | None,
    ) -> None:
        """``flush_timeout_s`` None answers without waiting for the disk (ASYNC_FLUSH)."""
        self._topics_saved = topics_saved
        self._tasks: set[asyncio.Task[None]] = set()
        self._store = store
        self._admission = admission
        self._answers = answers
        self._dispatching = dispatching
        self._counters = counters
        self._flush_timeout_s = flush_timeout_s
        self._born_hosts: dict[Connection, bytes] = {}

    def register(self, router: Router) -> None:
        """Enter the handler into the table."""
        router.add_group({int(code) for code in SEND_CODES}, self.handle)
        router.on_closed(self._forget_host)

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Store and answer a run of sends; raises nothing."""
        records: list[PendingRecord] = []
        admitted: list[Admitted] = []
        admit, creator = self._admission.admit, self._admission.creator
        created_before = creator.created_count
        born_host = self._born_hosts.get(connection) or self._learn_host(connection)
        for request in requests:
            try:
                admitted.append(admit(request, born_host, records))
            except Exception as error:  # noqa: BLE001 - every request of the group gets its own answer
                self._refuse(connection, request, error)
        if not records:
            return
        try:
            result = self._store.append(records)
        except Exception as error:  # noqa: BLE001 - a full disk, or a fault: nothing of the group is stored
            for entry in admitted:
                self._refuse(connection, entry.request, error)
            return
        counters = self._counters
        counters.messages_in += len(records)
        counters.bytes_in += result.end_offset - result.start_offset
        if creator.created_count != created_before:
            self._spawn(self._answer_when_saved(connection, admitted, result))
        elif self._flush_timeout_s is None:
            connection.send_raw(self._answers.encode_group(admitted, result, 0))
        else:
            self._answer_flushed(connection, admitted, result)
        self._dispatching.schedule()

    async def _answer_when_saved(self, connection: Connection, admitted: list[Admitted], result: AppendResult) -> None:
        """Answer a group that created topics: after a crash, a topic that nobody remembers would hide its messages."""
        try:
            await self._topics_saved()
        except StorageError as error:
            for entry in admitted:
                self._refuse(connection, entry.request, error)
            return
        if self._flush_timeout_s is None:
            connection.send_raw(self._answers.encode_group(admitted, result, 0))
        else:
            self._answer_flushed(connection, admitted, result)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Wait for the answers that wait for a file."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _learn_host(self, connection: Connection) -> bytes:
        host = encode_host(*connection.peer)
        if not connection.is_closed:
            self._born_hosts[connection] = host
        return host

    def _forget_host(self, connection: Connection) -> None:
        self._born_hosts.pop(connection, None)

    def _refuse(self, connection: Connection, request: RemotingCommand, error: Exception) -> None:
        self._counters.sends_refused += 1
        if isinstance(error, RaptorMQError):
            logger.debug("refused a send from %s: %s", connection.peer_name, error)
        if not request.is_oneway:
            connection.send_raw(encode(failure(request, error)))

    def _answer_flushed(self, connection: Connection, admitted: list[Admitted], result: AppendResult) -> None:
        waiting = [entry for entry in admitted if entry.wait]
        if len(waiting) < len(admitted):
            connection.send_raw(self._answers.encode_group(admitted, result, 0, waiting=False))
        if waiting:
            group = FlushWait(connection, admitted, result, self._answers)
            group.start(self._store, self._flush_timeout_s or 0.0)
