"""SEND_QUEUE_BATCHES (30320): sends for many queues in one request (:mod:`raptormq.protocol.queue_batches`).

Every part goes through the same gate and the same admission as a request of its own (310 or 320), and fails by itself.
What is admitted is appended in runs of one kind, each with one write; the one answer tells of all parts, under
SYNC_FLUSH when the disk has them. Neighbour: :mod:`.group`, which stores.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import groupby

from raptormq.broker.send.admission import Admission
from raptormq.broker.send.admitted import Admitted
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.send.group import SendGroups
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.send import QueueBatchesRequestHeader
from raptormq.protocol.queue_batches import (
    TOPIC_SEPARATOR,
    Part,
    PartAnswer,
    PartKind,
    decode_parts,
    encode_answers,
)
from raptormq.protocol.signing import ACCESS_KEY
from raptormq.storage.log_batch import Appended
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Refused, Router

MAX_MESSAGES = 262_144
"""Messages of one request: the answer names an id of 32 characters for each, and has to fit a frame."""

MAX_NEW_TOPICS = 64
"""Topics that one request brings into being; the next one may bring as many."""

Authorize = Callable[[Connection, RemotingCommand], None]
"""Raises the refusal of a send that its user must not make."""

_CODES = {PartKind.LIST: int(RequestCode.SEND_BATCH_MESSAGE), PartKind.MESSAGE: int(RequestCode.SEND_MESSAGE_V2)}
_Entry = tuple[int, Admitted]
"""A part that may be stored, and its place in the request."""


class QueueBatchHandlers:
    """Stores and answers requests for several queues."""

    def __init__(
        self, sends: SendGroups, admission: Admission, answers: SendAnswers, authorize: Authorize | None
    ) -> None:
        """``authorize`` None lets everybody send everything."""
        self._sends = sends
        self._admit = admission.admit
        self._knows_topic = admission.knows_topic
        self._offset_ids = answers.offset_ids
        self._authorize = authorize

    def register(self, router: Router) -> None:
        """Enter the handler into the table."""
        router.add(RequestCode.SEND_QUEUE_BATCHES, QueueBatchesRequestHeader, self.handle)

    def handle(
        self, connection: Connection, request: RemotingCommand, header: QueueBatchesRequestHeader
    ) -> Answer | Awaitable[Answer]:
        """Store every part that may be."""
        topics = header.topics.split(TOPIC_SEPARATOR)
        parts = decode_parts(request.body, len(topics))
        work = _Request(request, parts, self._sends_by_topic(request, topics))
        self._refuse_surplus(work, topics)
        entries = self._admitted(connection, work)
        waiting = False
        stored: list[tuple[list[_Entry], Appended]] = []
        for are_lists, run in groupby(entries, key=lambda entry: entry[1].is_list):
            group = list(run)
            admitted = [entry for _, entry in group]
            try:
                result = self._sends.append(admitted, are_lists=are_lists)
            except Exception as error:  # noqa: BLE001 - a full disk, or a fault: nothing of the run is stored
                for index, entry in group:
                    work.refuse(index, self._sends.refusal(connection, entry.request, error))
                continue
            stored.append((group, result))
            waiting = waiting or any(entry.wait for entry in admitted)
        if stored and self._sends.must_settle(waiting=waiting):
            return self._answer_when_safe(connection, work, stored, waiting=waiting)
        return self._answer(work, stored, ResponseCode.SUCCESS)

    @staticmethod
    def _sends_by_topic(request: RemotingCommand, topics: list[str]) -> list[RemotingCommand]:
        """Return, for each topic, a send with what the parts for it have in common."""
        given = request.ext_fields
        common = {name: given[name] for name in ("a", "c", "d", "g", ACCESS_KEY) if name in given}
        return [RemotingCommand(0, common | {"b": topic, "j": "0"}, opaque=request.opaque) for topic in topics]

    def _refuse_surplus(self, work: _Request, topics: list[str]) -> None:
        """Refuse what is for topics beyond the new ones that a request may make: thousands would hold all others up."""
        if len(topics) <= MAX_NEW_TOPICS:
            return
        unknown = [place for place, topic in enumerate(topics) if not self._knows_topic(topic)]
        surplus = frozenset(unknown[MAX_NEW_TOPICS:])
        if surplus:
            remark = f"topic not exist, and one request makes at most {MAX_NEW_TOPICS}"
            refusal = PartAnswer(ResponseCode.TOPIC_NOT_EXIST, text=remark)
            for index, part in enumerate(work.parts):
                if part.topic_index in surplus:
                    work.answers[index] = refusal

    def _admitted(self, connection: Connection, work: _Request) -> list[_Entry]:
        entries: list[_Entry] = []
        admit, born_host = self._admit, self._sends.born_host(connection)
        permitted: set[tuple[int, int]] = set()
        messages = 0
        answered = work.answers
        for index, part in enumerate(work.parts):
            if answered[index] is not None:
                continue
            send = work.send(part)
            try:
                if self._authorize is not None and (part.topic_index, part.kind) not in permitted:
                    self._authorize(connection, send)
                    permitted.add((part.topic_index, part.kind))
                entry = admit(send, born_host)
                if messages + entry.record_count > MAX_MESSAGES:
                    raise Refused(
                        ResponseCode.MESSAGE_ILLEGAL,
                        f"a request for several queues holds at most {MAX_MESSAGES} messages",
                    )
            except Exception as error:  # noqa: BLE001 - every part gets its own answer
                work.refuse(index, self._sends.refusal(connection, send, error))
            else:
                messages += entry.record_count
                entries.append((index, entry))
        return entries

    async def _answer_when_safe(
        self,
        connection: Connection,
        work: _Request,
        stored: list[tuple[list[_Entry], Appended]],
        *,
        waiting: bool,
    ) -> RemotingCommand:
        try:
            code = await self._sends.settled(stored[-1][1].end_offset, waiting=waiting)
        except Exception as error:  # noqa: BLE001 - the topic table could not be saved
            for group, _ in stored:
                for index, entry in group:
                    work.refuse(index, self._sends.refusal(connection, entry.request, error))
            return work.answer()
        return self._answer(work, stored, code)

    def _answer(self, work: _Request, stored: list[tuple[list[_Entry], Appended]], code: int) -> RemotingCommand:
        """Return the answer; ``code`` is that of the parts that wait for the disk."""
        new = tuple.__new__
        for group, result in stored:
            first, offset_ids, offsets = 0, self._offset_ids, result.queue_offsets
            for index, entry in group:
                after = first + entry.record_count
                ids = offset_ids(result.physical_offsets[first:after])
                fields = int(code) if entry.wait else 0, entry.in_batch > 0, entry.queue_id, offsets[first], ids
                work.answers[index] = new(PartAnswer, fields)
                first = after
        return work.answer()


class _Request:
    """One request on its way: its parts, and what became of them."""

    __slots__ = ("_request", "_sends", "answers", "parts")

    def __init__(self, request: RemotingCommand, parts: list[Part], sends: list[RemotingCommand]) -> None:
        self._request = request
        self._sends = sends
        self.parts = parts
        self.answers: list[PartAnswer | None] = [None] * len(parts)

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
        self.answers[index] = PartAnswer(refusal.code, text=refusal.remark or "")

    def answer(self) -> RemotingCommand:
        """Return the answer to all parts."""
        assert None not in self.answers
        return response_to(self._request, body=encode_answers(answer for answer in self.answers if answer))
