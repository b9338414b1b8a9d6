"""SEND_QUEUE_BATCHES (30320): sends for many queues in one request (:mod:`raptormq.protocol.queue_batches`).

Each part is authorized and admitted like a separate request (310 or 320), and has its own result. Consecutive accepted
parts of one kind are appended with one write by :mod:`.send_service`. One response reports all parts after they are
confirmed.

A request of 16 MiB may take a second. It is therefore stored in slices. The broker serves other connections between
slices. Later requests of the same connection wait. The total size of requests that are being stored in slices is
limited.
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
from raptormq.protocol.headers.send import QueueBatchesRequestHeader, QueueBatchesResponseHeader
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
from raptormq.transport.router import Answer, Refused, Router, SequentialTask

MAX_MESSAGES = 262_144
"""Maximum number of messages in a request. The response has an id of 32 characters for each and must fit in a frame."""

MAX_NEW_TOPICS = 64
"""Maximum number of topics that one request creates."""

SLICE_S = 0.005
"""Time limit for the admission of the parts of a slice, in seconds. The append takes about the same time again. The
admission of a part of 4 MiB takes longer.
"""

MAX_HELD_BYTES = 128 << 20
"""Maximum total body size of all requests that are being stored in slices. Further requests are refused with code 2."""

LARGE_BYTES = 1 << 20
"""Bodies above this size take long to decode. They wait until requests that started earlier are stored."""

Authorize = Callable[[Connection, RemotingCommand], None]
"""Raises an error if the user is not allowed to send the request."""

_CODES = {PartKind.LIST: int(RequestCode.SEND_BATCH_MESSAGE), PartKind.MESSAGE: int(RequestCode.SEND_MESSAGE_V2)}
_Entry = tuple[int, AcceptedSend]
"""Index of a part in the request, and its accepted send."""


def _is_list(entry: _Entry) -> bool:
    return entry[1].is_list


class QueueBatchHandlers:
    """Handles sends for several queues."""

    def __init__(
        self, sends: SendService, admission: Admission, answers: SendAnswers, authorize: Authorize | None
    ) -> None:
        """``authorize`` is None without access control."""
        self._sends = sends
        self._admit = admission.admit
        self._knows_topic = admission.knows_topic
        self._offset_ids = answers.offset_ids
        self._response_header = answers.queue_batches
        self._authorize = authorize
        self._turn = asyncio.Lock()
        """Held while a slice is stored: one slice per event loop iteration."""
        self._held_bytes = 0

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.SEND_QUEUE_BATCHES, QueueBatchesRequestHeader, self.handle)

    def handle(
        self, connection: Connection, request: RemotingCommand, header: QueueBatchesRequestHeader
    ) -> Answer | Awaitable[Answer] | SequentialTask:
        """Store all accepted parts. A large request yields to other requests between slices."""
        size = len(request.body)
        if self._held_bytes:
            if self._held_bytes + size > MAX_HELD_BYTES:
                remark = f"requests of {self._held_bytes} bytes for several queues are being stored; retry later"
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
            if size > LARGE_BYTES:
                self._held_bytes += size
                return SequentialTask(self._store_later(connection, request, header, size))
        work = self._taken_apart(request, header)
        self._store_some(connection, work)
        if not work.is_unfinished:
            return self._answer(connection, work)
        self._held_bytes += size
        return SequentialTask(self._store_rest(connection, work, size))

    def _taken_apart(self, request: RemotingCommand, header: QueueBatchesRequestHeader) -> _Request:
        topics = header.topics.split(TOPIC_SEPARATOR)
        parts = decode_parts(request.body, len(topics))
        request.body = b""  # frees memory: the parts are copies
        work = _Request(request, parts, self._sends_by_topic(request, topics), self._sends.leadership)
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
                    await asyncio.sleep(0)  # run the dispatch of the previous slice first
                    await asyncio.sleep(0)
                    self._store_some(connection, work)
        finally:
            self._held_bytes -= size
        return self._answer(connection, work)

    def _store_some(self, connection: Connection, work: _Request) -> None:
        """Store the next slice of a request. Parts are appended in the event loop iteration that admits them."""
        entries = self._admitted(connection, work)
        for are_lists, run in groupby(entries, key=_is_list):
            group = list(run)
            try:
                result = self._sends.append([entry for _, entry in group], are_lists=are_lists)
            except Exception as error:  # noqa: BLE001 - disk full or failed: no part of the run is stored
                for index, entry in group:
                    work.refuse(index, self._sends.refusal(connection, entry.request, error))
                continue
            self._note_places(work, group, result)

    @staticmethod
    def _sends_by_topic(request: RemotingCommand, topics: list[str]) -> list[RemotingCommand]:
        """Return, for each topic, a send request with the common fields of its parts."""
        given = request.ext_fields
        common = {name: given[name] for name in ("a", "c", "d", "g", ACCESS_KEY) if name in given}
        return [RemotingCommand(0, common | {"b": topic, "j": "0"}, opaque=request.opaque) for topic in topics]

    def _refuse_surplus(self, work: _Request, topics: list[str]) -> None:
        """Refuse the parts for unknown topics beyond :data:`MAX_NEW_TOPICS`.

        Creating thousands of topics would block all other requests. Clients retry a part with this code as a separate
        request.
        """
        if len(topics) <= MAX_NEW_TOPICS:
            return
        unknown = [place for place, topic in enumerate(topics) if not self._knows_topic(topic)]
        surplus = frozenset(unknown[MAX_NEW_TOPICS:])
        if surplus:
            remark = (
                f"topic not exist, and one request creates at most {MAX_NEW_TOPICS} topics: send a separate request"
            )
            refusal = PartResponse(ResponseCode.MESSAGE_ILLEGAL, text=remark)
            for index, part in enumerate(work.parts):
                if part.topic_index in surplus:
                    work.answers[index] = refusal

    def _admitted(self, connection: Connection, work: _Request) -> list[_Entry]:
        """Admit the next parts, until all are admitted or the time limit of a slice is reached."""
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
                        f"a request for several queues has at most {MAX_MESSAGES} messages",
                    )
            except Exception as error:  # noqa: BLE001 - each part gets its own response
                work.refuse(index, self._sends.refusal(connection, send, error))
            else:
                work.messages += entry.record_count
                entries.append((index, entry))
            if clock() > until:
                return entries
        work.is_unfinished = False
        work.parts.clear()  # frees memory: the response may wait for the disk
        return entries

    def _note_places(self, work: _Request, group: list[_Entry], result: Appended) -> None:
        """Record success for the parts of a stored run."""
        new, waits = tuple.__new__, self._sends.waits
        first, offset_ids, offsets, answers = 0, self._offset_ids, result.queue_offsets, work.answers
        for index, entry in group:
            after = first + entry.record_count
            ids = offset_ids(result.physical_offsets[first:after])
            answers[index] = new(PartResponse, (0, entry.in_batch > 0, entry.queue_id, offsets[first], ids))
            first = after
            if waits(entry):
                work.waiting.append(index)
        work.stored += [index for index, _ in group]
        work.end_offset = result.end_offset
        work.is_unsaved = work.is_unsaved or self._sends.any_unsaved(entry for _, entry in group)

    def _answer(self, connection: Connection, work: _Request) -> Answer | Awaitable[Answer]:
        is_lost = work.leadership != self._sends.leadership  # between two slices
        if is_lost or work.is_unsaved or (work.waiting and not self._sends.is_confirmed(work.end_offset)):
            return self._answer_when_safe(connection, work)
        return work.answer(self._response_header)

    async def _answer_when_safe(self, connection: Connection, work: _Request) -> RemotingCommand:
        try:
            code = await self._sends.wait(
                work.end_offset, work.leadership, unsaved=work.is_unsaved, waiting=bool(work.waiting)
            )
        except Exception as error:  # noqa: BLE001 - the topic table was not saved, or another member leads
            for index in work.stored:
                work.refuse(index, self._sends.refusal(connection, work.request, error))
        else:
            work.set_code(code)
        return work.answer(self._response_header)


class _Request:
    """State of one request: its parts and their results."""

    __slots__ = (
        "_sends",
        "answers",
        "end_offset",
        "is_unfinished",
        "is_unsaved",
        "leadership",
        "left",
        "messages",
        "parts",
        "permitted",
        "request",
        "stored",
        "waiting",
    )

    def __init__(
        self, request: RemotingCommand, parts: list[Part], sends: list[RemotingCommand], leadership: int
    ) -> None:
        self.request = request
        self.leadership = leadership
        """The leadership before the first append. If it ends before the response, all stored parts are refused."""
        self._sends = sends
        self.parts = parts
        self.left = iter(enumerate(parts))
        """Parts that are not admitted yet."""
        self.is_unfinished = True
        self.is_unsaved = False
        """Whether topics of stored parts must be saved before the response."""
        self.answers: list[PartResponse | None] = [None] * len(parts)
        self.permitted: set[tuple[int, int]] = set()
        """Pairs of topic index and kind for which the user is authorized."""
        self.messages = 0
        self.stored: list[int] = []
        """Indexes of the stored parts; the parts themselves are freed."""
        self.waiting: list[int] = []
        """Indexes of the stored parts whose result waits for the confirmation."""
        self.end_offset = 0
        """End of the stored parts in the log."""

    def send(self, part: Part) -> RemotingCommand:
        """Return a part as a send request, which is valid until the next call for the same topic."""
        kind, topic_index, queue_id, sys_flag, flag, properties, body = part
        send = self._sends[topic_index]
        fields = send.ext_fields
        fields["e"], fields["f"], fields["h"], fields["i"] = str(queue_id), str(sys_flag), str(flag), properties
        send.code, send.body = _CODES[kind], body
        return send

    def refuse(self, index: int, refusal: RemotingCommand) -> None:
        """Record the error of a part."""
        self.answers[index] = PartResponse(refusal.code, text=refusal.remark or "")

    def set_code(self, code: int) -> None:
        """Set the result code of the parts that waited for the confirmation."""
        if code != ResponseCode.SUCCESS:
            for index in self.waiting:
                stored = self.answers[index]
                assert stored is not None
                self.answers[index] = stored._replace(code=int(code))

    def answer(self, header: QueueBatchesResponseHeader) -> RemotingCommand:
        """Return the response for all parts."""
        assert None not in self.answers
        body = encode_part_responses(answer for answer in self.answers if answer)
        return response_to(self.request, header=header, body=body)
