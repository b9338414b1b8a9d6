"""SEND_QUEUE_BATCHES (30320): sends for many queues in one request (:mod:`raptormq.protocol.queue_batches`).

Every part goes through the same gate and the same admission as a request of its own (310 or 320), and fails by itself.
What is admitted is appended in runs of one kind, each with one write; the one answer tells of all parts, under
SYNC_FLUSH when the disk has them. A request of 16 MiB may take a second: it is stored in slices, and between them
other connections have their turn, while what comes behind it on its own waits. Every connection may bring such a
request at the same time, so what they take together is limited. Neighbour: :mod:`.group`, which stores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import groupby

from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.send.send_service import SendService
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.send import QueueBatchesRequestHeader
from raptormq.protocol.queue_batches import (
    TOPIC_SEPARATOR,
    Part,
    PartKind,
    PartResponse,
    decode_parts,
    encode_part_responses,
)
from raptormq.protocol.signing import ACCESS_KEY
from raptormq.storage.queue import Appended
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, InOrder, Refused, Router

MAX_MESSAGES = 262_144
"""Messages of one request: the answer names an id of 32 characters for each, and has to fit a frame."""

MAX_NEW_TOPICS = 64
"""Topics that one request brings into being; the next one may bring as many."""

SLICE_S = 0.005
"""How long parts are looked at before others have their turn; to append them takes as long again. One part of 4 MiB
takes longer."""

MAX_HELD_BYTES = 128 << 20
"""Bodies of all requests that are stored in slices: what comes beyond them is refused (2), to be sent again."""

LARGE_BYTES = 1 << 20
"""Bodies that take so long to be taken apart that they wait for their turn, where others have begun before."""

Authorize = Callable[[Connection, RemotingCommand], None]
"""Raises the refusal of a send that its user must not make."""

_CODES = {PartKind.LIST: int(RequestCode.SEND_BATCH_MESSAGE), PartKind.MESSAGE: int(RequestCode.SEND_MESSAGE_V2)}
_Entry = tuple[int, AcceptedSend]
"""A part that may be stored, and its place in the request."""


def _is_list(entry: _Entry) -> bool:
    return entry[1].is_list


class QueueBatchHandlers:
    """Stores and answers requests for several queues."""

    def __init__(
        self, sends: SendService, admission: Admission, answers: SendAnswers, authorize: Authorize | None
    ) -> None:
        """``authorize`` None lets everybody send everything."""
        self._sends = sends
        self._admit = admission.admit
        self._knows_topic = admission.knows_topic
        self._offset_ids = answers.offset_ids
        self._authorize = authorize
        self._turn = asyncio.Lock()
        """However many requests are under way, one of them goes on in each turn of the loop."""
        self._held_bytes = 0

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.SEND_QUEUE_BATCHES, QueueBatchesRequestHeader, self.handle)

    def handle(
        self, connection: Connection, request: RemotingCommand, header: QueueBatchesRequestHeader
    ) -> Answer | Awaitable[Answer] | InOrder:
        """Store every part that may be; others have their turn in between where that takes long."""
        size = len(request.body)
        if self._held_bytes:
            if self._held_bytes + size > MAX_HELD_BYTES:
                remark = f"requests for several queues with {self._held_bytes} bytes are being stored: send it later"
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
            if size > LARGE_BYTES:
                self._held_bytes += size
                return InOrder(self._store_later(connection, request, header, size))
        work = self._taken_apart(request, header)
        self._store_some(connection, work)
        if not work.is_unfinished:
            return self._answer(connection, work)
        self._held_bytes += size
        return InOrder(self._store_rest(connection, work, size))

    def _taken_apart(self, request: RemotingCommand, header: QueueBatchesRequestHeader) -> _Request:
        topics = header.topics.split(TOPIC_SEPARATOR)
        parts = decode_parts(request.body, len(topics))
        request.body = b""  # the parts have copies
        work = _Request(request, parts, self._sends_by_topic(request, topics))
        self._refuse_surplus(work, topics)
        return work

    async def _store_later(
        self, connection: Connection, request: RemotingCommand, header: QueueBatchesRequestHeader, size: int
    ) -> Answer | Awaitable[Answer]:
        try:
            async with self._turn:
                await asyncio.sleep(0)
                work = self._taken_apart(request, header)
        except BaseException:
            self._held_bytes -= size
            raise
        return await self._store_rest(connection, work, size)

    async def _store_rest(self, connection: Connection, work: _Request, size: int) -> Answer | Awaitable[Answer]:
        try:
            while work.is_unfinished:
                async with self._turn:
                    await asyncio.sleep(0)  # a turn for the dispatch of the last slice, which may take as long
                    await asyncio.sleep(0)
                    self._store_some(connection, work)
        finally:
            self._held_bytes -= size
        return self._answer(connection, work)

    def _store_some(self, connection: Connection, work: _Request) -> None:
        """Store the next parts of a request: what is admitted in one turn of the loop is appended in the same one."""
        entries = self._admitted(connection, work)
        for are_lists, run in groupby(entries, key=_is_list):
            group = list(run)
            try:
                result = self._sends.append([entry for _, entry in group], are_lists=are_lists)
            except Exception as error:  # noqa: BLE001 - a full disk, or a fault: nothing of the run is stored
                for index, entry in group:
                    work.refuse(index, self._sends.refusal(connection, entry.request, error))
                continue
            self._note_places(work, group, result)

    @staticmethod
    def _sends_by_topic(request: RemotingCommand, topics: list[str]) -> list[RemotingCommand]:
        """Return, for each topic, a send with what the parts for it have in common."""
        given = request.ext_fields
        common = {name: given[name] for name in ("a", "c", "d", "g", ACCESS_KEY) if name in given}
        return [RemotingCommand(0, common | {"b": topic, "j": "0"}, opaque=request.opaque) for topic in topics]

    def _refuse_surplus(self, work: _Request, topics: list[str]) -> None:
        """Refuse what is for topics beyond the new ones that a request may make: thousands would hold all others up.
        The code is one that clients take for what it is: sent by itself it may be stored.
        """
        if len(topics) <= MAX_NEW_TOPICS:
            return
        unknown = [place for place, topic in enumerate(topics) if not self._knows_topic(topic)]
        surplus = frozenset(unknown[MAX_NEW_TOPICS:])
        if surplus:
            remark = f"topic not exist, and one request makes at most {MAX_NEW_TOPICS}: send it by itself"
            refusal = PartResponse(ResponseCode.MESSAGE_ILLEGAL, text=remark)
            for index, part in enumerate(work.parts):
                if part.topic_index in surplus:
                    work.answers[index] = refusal

    def _admitted(self, connection: Connection, work: _Request) -> list[_Entry]:
        """Return the next parts that may be stored: all that are left, or as many as may hold others up."""
        entries: list[_Entry] = []
        admit, born_host = self._admit, self._sends.born_host(connection)
        clock, until = time.monotonic, time.monotonic() + SLICE_S
        answered = work.answers
        for index, part in work.left:
            if answered[index] is not None:
                continue
            send = work.send(part)
            try:
                if self._authorize is not None and (part.topic_index, part.kind) not in work.permitted:
                    self._authorize(connection, send)
                    work.permitted.add((part.topic_index, part.kind))
                entry = admit(send, born_host)
                if work.messages + entry.record_count > MAX_MESSAGES:
                    raise Refused(
                        ResponseCode.MESSAGE_ILLEGAL,
                        f"a request for several queues holds at most {MAX_MESSAGES} messages",
                    )
            except Exception as error:  # noqa: BLE001 - every part gets its own answer
                work.refuse(index, self._sends.refusal(connection, send, error))
            else:
                work.messages += entry.record_count
                entries.append((index, entry))
            if clock() > until:
                return entries
        work.is_unfinished = False
        work.parts.clear()  # the answer may wait for the disk
        return entries

    def _note_places(self, work: _Request, group: list[_Entry], result: Appended) -> None:
        """Answer the parts of a run that was stored, as if the disk had them."""
        new = tuple.__new__
        first, offset_ids, offsets, answers = 0, self._offset_ids, result.queue_offsets, work.answers
        for index, entry in group:
            after = first + entry.record_count
            ids = offset_ids(result.physical_offsets[first:after])
            answers[index] = new(PartResponse, (0, entry.in_batch > 0, entry.queue_id, offsets[first], ids))
            first = after
            if entry.wait:
                work.waiting.append(index)
        work.stored += [index for index, _ in group]
        work.end_offset = result.end_offset
        work.is_unsaved = work.is_unsaved or self._sends.any_unsaved(entry for _, entry in group)

    def _answer(self, connection: Connection, work: _Request) -> Answer | Awaitable[Answer]:
        if work.is_unsaved or (work.waiting and not self._sends.is_confirmed(work.end_offset)):
            return self._answer_when_safe(connection, work)
        return work.answer()

    async def _answer_when_safe(self, connection: Connection, work: _Request) -> RemotingCommand:
        try:
            code = await self._sends.wait(work.end_offset, unsaved=work.is_unsaved, waiting=bool(work.waiting))
        except Exception as error:  # noqa: BLE001 - the topic table could not be saved
            for index in work.stored:
                work.refuse(index, self._sends.refusal(connection, work.request, error))
        else:
            work.set_code(code)
        return work.answer()


class _Request:
    """One request on its way: its parts, and what became of them."""

    __slots__ = (
        "_sends",
        "answers",
        "end_offset",
        "is_unfinished",
        "is_unsaved",
        "left",
        "messages",
        "parts",
        "permitted",
        "request",
        "stored",
        "waiting",
    )

    def __init__(self, request: RemotingCommand, parts: list[Part], sends: list[RemotingCommand]) -> None:
        self.request = request
        self._sends = sends
        self.parts = parts
        self.left = iter(enumerate(parts))
        """Parts that nobody has looked at."""
        self.is_unfinished = True
        self.is_unsaved = False
        """Whether topics of stored parts have to be saved before the answer."""
        self.answers: list[PartResponse | None] = [None] * len(parts)
        self.permitted: set[tuple[int, int]] = set()
        """Topics and kinds that the user may send."""
        self.messages = 0
        self.stored: list[int] = []
        """Places of the stored parts: the parts themselves are large."""
        self.waiting: list[int] = []
        """Places of the stored parts that wait for the disk."""
        self.end_offset = 0
        """Where what is stored ends in the log."""

    def send(self, part: Part) -> RemotingCommand:
        """Return a part as the request that it stands for, until the next part of its topic is asked for."""
        kind, topic_index, queue_id, sys_flag, flag, properties, body = part
        send = self._sends[topic_index]
        fields = send.ext_fields
        fields["e"], fields["f"], fields["h"], fields["i"] = str(queue_id), str(sys_flag), str(flag), properties
        send.code, send.body = _CODES[kind], body
        return send

    def refuse(self, index: int, refusal: RemotingCommand) -> None:
        """Note why a part is not stored."""
        self.answers[index] = PartResponse(refusal.code, text=refusal.remark or "")

    def set_code(self, code: int) -> None:
        """Let the parts that wait for the disk be answered with ``code``."""
        if code != ResponseCode.SUCCESS:
            for index in self.waiting:
                stored = self.answers[index]
                assert stored is not None
                self.answers[index] = stored._replace(code=int(code))

    def answer(self) -> RemotingCommand:
        """Return the answer to all parts."""
        assert None not in self.answers
        return response_to(self.request, body=encode_part_responses(answer for answer in self.answers if answer))
