"""Batch handler of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

All sends from one socket read share one append and one response write::

    requests --admit--> records --append (one vectored write)--> offsets --template--> one buffer of responses
                 `--> refusals                                      `--> dispatch, after the responses, in the same turn
                 of the loop

The response waits until the store has confirmed the group, under SYNC_FLUSH until the group is on disk. On a
SYNC_MASTER, it also waits until slaves have acknowledged the group. After a timeout the code is 10 (stored, but not on
disk), or 11 or 12 (not acknowledged by a slave). Outside a Dledger group, sends with WAIT=false are answered
immediately.

If the last change of a topic is not saved in ``topics.json`` yet, responses to sends for it also wait for the save.
After a crash, consumers could not read the message if the topic or its queue were missing in the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import groupby
from operator import attrgetter
from time import perf_counter
from typing import Protocol

from raptormq.broker.addresses import peer_host
from raptormq.broker.metrics import Counters
from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.send.pending_answers import PendingAnswers
from raptormq.errors import RaptorMQError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, encode
from raptormq.storage.fs import TableSaver
from raptormq.storage.queue import Appended
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router, failure

logger = get_logger(__name__)

SEND_CODES = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}

_IS_LIST = attrgetter("is_list")
_PENDING = attrgetter("pending")


class Dispatching(Protocol):
    """Makes appended records visible to consumers."""

    def schedule(self) -> None:
        """Request a dispatch later in this event loop iteration."""


class SendService:
    """Stores groups of sends and answers them."""

    def __init__(
        self,
        store: MessageStore,
        admission: Admission,
        answers: SendAnswers,
        dispatching: Dispatching,
        counters: Counters,
        topics_saver: TableSaver,
        pending_answers: PendingAnswers,
    ) -> None:
        self._topics_saver = topics_saver
        self._tasks: set[asyncio.Task[None]] = set()
        self._store = store
        self._admission = admission
        self._answers = answers
        self._dispatching = dispatching
        self._counters = counters
        self._pending_answers = pending_answers
        self._born_hosts: dict[Connection, bytes] = {}

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add_batch_handler({int(code) for code in SEND_CODES}, self.handle)
        router.on_closed(self._forget_host)

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Store and answer a group of sends. Errors are sent as responses."""
        admitted: list[AcceptedSend] = []
        admit = self._admission.admit
        born_host = self.born_host(connection)
        for request in requests:
            try:
                admitted.append(admit(request, born_host))
            except Exception as error:  # noqa: BLE001 - each request of the group gets its own response
                self._refuse(connection, request, error)
        for are_lists, run in groupby(admitted, key=_IS_LIST):
            self._store_run(connection, list(run), are_lists=are_lists)

    def _store_run(self, connection: Connection, admitted: list[AcceptedSend], *, are_lists: bool) -> None:
        """Store and answer requests of one kind: single messages or lists."""
        try:
            result = self.append(admitted, are_lists=are_lists)
        except Exception as error:  # noqa: BLE001 - disk full or failed: no record of the group is stored
            for entry in admitted:
                self._refuse(connection, entry.request, error)
            return
        if self.any_unsaved(admitted):
            self._spawn(self._answer_when_saved(connection, admitted, result, self._store.leadership))
        else:
            self._pending_answers.answer(connection, admitted, result)

    def append(self, admitted: list[AcceptedSend], *, are_lists: bool) -> Appended:
        """Append requests of one kind with one write, and schedule their dispatch.

        Raises:
            Refused: too many groups wait for the disk.
            StorageError: no request was stored.
        """
        if self._pending_answers.is_full:
            raise Refused(ResponseCode.SYSTEM_BUSY, "too many messages wait for the disk")
        began = perf_counter()
        pending = list(map(_PENDING, admitted))
        result = self._store.append_lists(pending) if are_lists else self._store.append(pending)
        self._counters.stored(result)
        self._time(began, result)
        self._dispatching.schedule()
        return result

    def _time(self, began: float, result: Appended) -> None:
        """Measure the time until the messages are confirmed, under SYNC_FLUSH until they are on disk."""
        if result.end_offset <= self._store.confirmed_offset:
            self._counters.put_times.add(perf_counter() - began, result.message_count)
        else:
            self._time_later(began, result)

    def _time_later(self, began: float, result: Appended) -> None:
        times, count = self._counters.put_times, result.message_count

        def confirmed(error: StorageError | None) -> None:
            if error is None:
                times.add(perf_counter() - began, count)

        self._store.on_confirmed(result.end_offset, confirmed)

    def any_unsaved(self, admitted: Iterable[AcceptedSend]) -> bool:
        """Return whether the last change of one of the topics is not saved yet. For half, delayed and timer messages,
        the destination topic counts.
        """
        unsaved = self._topics_saver.unsaved
        return bool(unsaved) and any((entry.later_topic or entry.pending.topic) in unsaved for entry in admitted)

    def waits(self, entry: AcceptedSend) -> bool:
        """Return whether the response to a send waits for the confirmation. In a replication group it always does."""
        return entry.wait or self._pending_answers.waits_always

    def is_confirmed(self, end_offset: int) -> bool:
        """Return whether sends up to ``end_offset`` of the log may be answered."""
        return self._pending_answers.is_done(end_offset)

    @property
    def leadership(self) -> int:
        """The leadership of the store, see :attr:`MessageStore.leadership`."""
        return self._store.leadership

    async def wait(self, end_offset: int, leadership: int, *, unsaved: bool, waiting: bool) -> int:
        """Wait until sends may be answered. Return the response code for the sends that wait for the confirmation.

        Args:
            end_offset: log offset at which the last send ends.
            leadership: :attr:`leadership` at the append of the first send.
            unsaved: whether to wait until the topics are saved.
            waiting: whether there are sends that wait for the confirmation (:meth:`waits`).

        Raises:
            StorageError: the topics could not be saved, or this member of a replication group has ceased to lead.
        """
        if unsaved:
            await self._topics_saver.saved()
        self._store.check_leadership(leadership)
        if not waiting or self.is_confirmed(end_offset):
            return ResponseCode.SUCCESS
        return await self._pending_answers.wait(end_offset)

    async def _answer_when_saved(
        self, connection: Connection, admitted: list[AcceptedSend], result: Appended, leadership: int
    ) -> None:
        try:
            await self._topics_saver.saved()
            self._store.check_leadership(leadership)
        except StorageError as error:
            for entry in admitted:
                self._refuse(connection, entry.request, error)
            return
        self._pending_answers.answer(connection, admitted, result)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Wait for pending responses that depend on saved topics."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def born_host(self, connection: Connection) -> bytes:
        """Return the BORNHOST of messages from ``connection``."""
        return self._born_hosts.get(connection) or self._learn_host(connection)

    def _learn_host(self, connection: Connection) -> bytes:
        host = peer_host(*connection.peer)
        if not connection.is_closed:
            connection.read_promptly(for_good=True)  # low latency for producers
            self._born_hosts[connection] = host
        return host

    def _forget_host(self, connection: Connection) -> None:
        self._born_hosts.pop(connection, None)

    def _refuse(self, connection: Connection, request: RemotingCommand, error: Exception) -> None:
        refusal = self.refusal(connection, request, error)
        if not request.is_oneway:
            connection.send_raw(encode(refusal))

    def refusal(self, connection: Connection, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """Count a refused send and return its response."""
        self._counters.sends_refused += 1
        if isinstance(error, RaptorMQError):
            logger.debug("refused a send from %s: %s", connection.peer_name, error)
        return failure(request, error)
