"""Connections between the members of a group, on the ports of ``dLegerPeers``.

Raft tolerates lost messages, so a message that cannot be sent now is dropped. Each member opens one connection to every
other member and sends its messages there. Responses are messages in the other direction. A range of the log is sent as
slices of the memory mapping. If its pages are not resident, a thread reads them first. Later messages for the same
member are queued behind it, at most :data:`MAX_WAITING`.

A received message is accepted if it belongs to the group and its sender is a member. All others are refused, counted,
and logged once per peer and reason. Messages of members with other settings are dropped
(:mod:`~raptormq.broker.replication.fixed_settings`). A follower also requests the status of the group from the leader
on the same connection (DESCRIBE_REPLICATION).

When the connection to a member ends, new connections are tried until one is open. If one is refused, no process listens
on the port of the member, so its process has ended, and the owner of the links is notified. Any other end of a
connection does not show that the process has ended.

A member whose copy of a closed segment is damaged requests the bytes from the others with READ_LOG_RANGE (31015). The
header fields are ``group`` and the log offsets ``begin`` and ``limit``. The body of the response has the records from
``begin`` on that end at or before ``limit``, at most :data:`RANGE_BYTES` unless the first record is longer. Both the
sender and the receiver validate the records. An error response with the field ``lacks`` says that the copy of the
sender has no valid records there; other errors are temporary, or come from an earlier release.

The same request compares copies (:mod:`~raptormq.broker.replication.copy_comparison`). Two optional header fields are
added to it: ``log``, the identity of the sender's log up to ``limit``, and ``digest``, the digest of its records of the
range. The response to a request with a digest has the own one in the field ``digest`` and no body. The response to one
with ``log`` alone has the records, and the field ``copied`` lists those that are no originals, such as ``0-700``. It is
absent if the member does not vote. Version 0.2.0 does not know the fields: it sends records, without ``copied``.

The host name of a member is resolved for every new connection. If the address of a member has changed or its machine
is down, the kernel closes the connection for lack of acknowledgements (TCP_USER_TIMEOUT). The next connection uses the
new address.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from raptormq.broker.replication.codec import decode, encode_head, header_of
from raptormq.broker.replication.copied_ranges import CopiedRanges
from raptormq.broker.replication.fixed_settings import FixedSettings
from raptormq.broker.replication.group_member import InThread
from raptormq.broker.replication.log_history import LogHistory
from raptormq.errors import BodyError, NoValidCopy, RaptorMQError, ServerError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.members import parse_integer
from raptormq.protocol.bodies.replication import ReplicationState, Verdict
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand, SerializeType, request, response_to
from raptormq.protocol.headers.replication import DescribeReplicationRequestHeader
from raptormq.protocol.signing import Credentials, CredentialSource
from raptormq.raft import Append, AppendResponse, Message
from raptormq.storage.fs import Buffer, PagesMissing
from raptormq.storage.maintenance import Copy
from raptormq.storage.replica import Replica
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool, RefuseRequests
from raptormq.transport.router import answer, failure
from raptormq.transport.timing import Backoff
from raptormq.transport.tls import ClientTls

logger = get_logger(__name__)

MAX_WAITING = 1_000
"""Maximum number of messages for one member that wait for a disk read. Further ones are dropped."""
_OWED_BYTES = 64 << 20
_CONNECT_S = 1.0
_BACKOFF = Backoff(0.05, 0.25)
_HISTORY_S = 2.0
RANGE_BYTES = 1 << 20
"""Maximum size of one response to READ_LOG_RANGE, unless a single record is longer."""
_RANGE_S = 10.0
_COMPARE_S = 5.0
_MAX_ANSWERING = 16
"""Maximum number of requests of other members that are answered at the same time."""
_RENEWAL_S = 2.0
_GROUP = "group"
_RESTARTING, _RENEWING, _STORED = "restarting", "renewing", "stored"
_BEGIN, _LIMIT, _LACKS = "begin", "limit", "lacks"
_LOG, _DIGEST, _COPIED = "log", "digest", "copied"
_QUERIES = (RequestCode.DESCRIBE_REPLICATION, RequestCode.GET_LOG_HISTORY, RequestCode.READ_LOG_RANGE)


class LogRange(NamedTuple):
    """A range of the log to compare."""

    begin: int
    limit: int
    log: str
    """Identity of the log of the member that compares (:meth:`GroupMember.log_identity`)."""

    def fields(self) -> dict[str, str]:
        """Return the header fields of a request."""
        return {_BEGIN: str(self.begin), _LIMIT: str(self.limit), _LOG: self.log}


class Links:
    """Sends messages to the other members."""

    def __init__(
        self,
        group: str,
        addresses: Mapping[str, str],
        replica: Replica,
        in_thread: InThread,
        credentials: Credentials | CredentialSource | None = None,
        tls: ClientTls | None = None,
        unacknowledged_ms: int = 0,
        process_ended: Callable[[str], None] = lambda _member: None,
        unreadable: Callable[[int, int], None] = lambda _offset, _size: None,
        fixed: FixedSettings | None = None,
    ) -> None:
        """Create the connections; they are opened when needed.

        Args:
            group: name of the group (``dLegerGroup``).
            addresses: addresses of the other members by id.
            replica: the local copy of the log.
            in_thread: runs blocking disk reads.
            credentials: sign every message if given.
            tls: TLS settings.
            unacknowledged_ms: a connection is closed if the peer acknowledges no bytes for this time.
            process_ended: called with the id of a member whose process has ended, once per ended connection.
            unreadable: called with offset and size of a range of the log that the disk cannot read.
            fixed: settings that the other members compare with theirs.

        Raises:
            ConfigError: a file of ``tls`` cannot be used.
        """
        limits = ConnectionLimits(
            max_unsent_bytes=_OWED_BYTES,
            write_high_water_bytes=_OWED_BYTES // 2,
            credentials=credentials,
            unacknowledged_ms=unacknowledged_ms,
        )
        self._group = group
        self._addresses = dict(addresses)
        pool = ConnectionPool(_Watch(self._ended), limits, _CONNECT_S, tls)
        self._pool = pool
        self._links = {
            member: _Link(
                address,
                group,
                pool,
                replica,
                in_thread,
                partial(process_ended, member),
                unreadable,
                signs=credentials is not None,
                fixed=fixed,
            )
            for member, address in addresses.items()
        }

    def send(self, message: Message) -> None:
        """See :class:`~raptormq.broker.replication.group_member.Outbox`."""
        link = self._links.get(message.to)
        if link is not None:
            link.send(message)

    def discard_pending(self) -> None:
        """See :class:`~raptormq.broker.replication.group_member.Outbox`."""
        for link in self._links.values():
            link.drop_waiting()

    def _ended(self, connection: Connection) -> None:
        for link in self._links.values():
            link.ended(connection)

    async def describe(self, member: str, restarting: str, seconds: float) -> ReplicationState:
        """Request the status of the group from another member, with its verdict on a restart of ``restarting``.

        Raises:
            RaptorMQError: the member did not respond, or its response is not a status.
        """
        address = self._addresses.get(member, "")
        header = DescribeReplicationRequestHeader(restarting, self._group)
        answered = await self._pool.request(address, request(RequestCode.DESCRIBE_REPLICATION, header), seconds)
        return ReplicationState.from_json(answered.body)

    async def may_renew(self, leader: str, member: str, stored: int | None) -> Verdict | None:
        """Ask the leader whether ``member`` may drop its log (:mod:`~raptormq.broker.replication.renewal`). Return None
        if the leader does not know the question.

        Raises:
            RaptorMQError: the leader did not respond, or its response is not a status.
        """
        header = DescribeReplicationRequestHeader(group=self._group, renewing=member, stored=stored)
        question = request(RequestCode.DESCRIBE_REPLICATION, header)
        answered = await self._pool.request(self._addresses.get(leader, ""), question, _RENEWAL_S)
        return ReplicationState.from_json(answered.body).renewal

    async def history(self, member: str) -> LogHistory:
        """See :class:`~raptormq.broker.replication.group_member.Outbox`."""
        return LogHistory.from_json((await self._ask(member, RequestCode.GET_LOG_HISTORY, {}, _HISTORY_S)).body)

    async def read_range(self, member: str, begin: int, limit: int) -> bytes:
        """Request the records of the log from ``begin`` on that end at or before ``limit`` from another member, at most
        :data:`RANGE_BYTES` unless the first record is longer.

        Raises:
            NoValidCopy: the copy of the member is damaged there, too, or does not contain the range.
            RaptorMQError: the member did not respond, or has not sent the records for another reason.
        """
        fields = {_BEGIN: str(begin), _LIMIT: str(limit)}
        return (await self._ask(member, RequestCode.READ_LOG_RANGE, fields, _RANGE_S)).body

    async def digest(self, member: str, place: LogRange, digest: str) -> str:
        """Request the digest of the records of a range from another member, which compares it with ``digest``. Return
        an empty text if its release does not know digests.

        Raises:
            NoValidCopy: the copy of the member is damaged there, or does not contain the range.
            RaptorMQError: the member did not respond, or cannot compare the range now.
        """
        fields = place.fields() | {_DIGEST: digest}
        return (await self._ask(member, RequestCode.READ_LOG_RANGE, fields, _COMPARE_S)).ext_fields.get(_DIGEST, "")

    async def read_copy(self, member: str, place: LogRange) -> Copy:
        """Request the records of a range from another member for a comparison. Limit and errors are those of
        :meth:`read_range`. A member of a release that does not compare copies does not vote.
        """
        response = await self._ask(member, RequestCode.READ_LOG_RANGE, place.fields(), _COMPARE_S)
        copied = response.ext_fields.get(_COPIED)
        return Copy(response.body, None if copied is None else CopiedRanges.from_text(copied).ranges)

    def is_connected(self, member: str) -> bool:
        """Return whether a connection to another member is open."""
        return self._pool.open_connection(self._addresses.get(member, "")) is not None

    async def _ask(self, member: str, code: int, fields: dict[str, str], seconds: float) -> RemotingCommand:
        """Return the response to a request about the group."""
        address = self._addresses.get(member, "")
        response = await self._pool.request(address, RemotingCommand(code, {_GROUP: self._group} | fields), seconds)
        if response.code != ResponseCode.SUCCESS:
            if _LACKS in response.ext_fields:
                raise NoValidCopy(response.remark or "")
            raise ServerError(response.code, response.remark or "", address)
        return response

    async def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            await link.stop()
        await self._pool.close(0.2)


class _Watch(RefuseRequests):
    """Reports connections that have ended."""

    def __init__(self, ended: Callable[[Connection], None]) -> None:
        self._ended = ended

    def closed(self, connection: Connection) -> None:
        """Report a closed connection (RequestHandler)."""
        self._ended(connection)


class _Link:
    """Sends messages to one member, in order."""

    def __init__(
        self,
        address: str,
        group: str,
        pool: ConnectionPool,
        replica: Replica,
        in_thread: InThread,
        process_ended: Callable[[], None],
        unreadable: Callable[[int, int], None],
        *,
        signs: bool,
        fixed: FixedSettings | None = None,
    ) -> None:
        self._address = address
        self._group = group
        self._fixed = {} if fixed is None else fixed.to_fields()
        self._pool = pool
        self._replica = replica
        self._in_thread = in_thread
        self._process_ended = process_ended
        self._unreadable = unreadable
        self._signs = signs
        self._last: Connection | None = None
        self._was_connected = False
        self._waiting: deque[Message] = deque()
        self._cuts = 0
        self._reading: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._stopped = False

    def send(self, message: Message) -> None:
        """Send, queue or drop a message. It is queued behind earlier messages that wait for a disk read."""
        if self._waiting or self._reading is not None:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(message)
            return
        connection = self._connection()
        if connection is None:
            return
        try:
            self._send(connection, message, self._data_of(message, wait=False))
        except PagesMissing:
            self._waiting.append(message)
            self._reading = asyncio.get_running_loop().create_task(self._send_waiting())
        except (StorageError, ValueError) as error:
            self._not_read(message, error)

    def _data_of(self, message: Message, *, wait: bool) -> Sequence[Buffer]:
        if not isinstance(message, Append) or message.previous.offset == message.end.offset:
            return ()
        return self._replica.read(message.previous.offset, message.end.offset, wait=wait)

    async def _send_waiting(self) -> None:
        try:
            while self._waiting and not self._stopped:
                message, cuts = self._waiting.popleft(), self._cuts
                data: Sequence[Buffer] = await self._in_thread(partial(self._data_of, message, wait=True))
                connection = self._connection()
                if cuts == self._cuts and connection is not None:
                    self._send(connection, message, data)
        except (StorageError, OSError, ValueError) as error:
            self._waiting.clear()
            self._not_read(message, error)
        finally:
            self._reading = None

    def _not_read(self, message: Message, error: Exception) -> None:
        logger.warning("cannot read the part of the log that the member at %s needs: %s", self._address, error)
        if isinstance(message, Append) and not isinstance(error, ValueError):  # otherwise the log has been truncated
            self._unreadable(message.previous.offset, message.end.offset - message.previous.offset)

    def _send(self, connection: Connection, message: Message, data: Sequence[Buffer]) -> None:
        if connection.is_clogged:
            return
        command = RemotingCommand(
            RequestCode.REPLICATE,
            {_GROUP: self._group} | header_of(message),
            flag=CommandFlag.ONEWAY,
            serialize_type=SerializeType.ROCKETMQ,
        )
        if not data and not isinstance(message, AppendResponse):  # the others are too frequent
            command.ext_fields |= self._fixed
        head = encode_head(message)
        if self._signs or not data:
            command.body = b"".join((head, *data))
            connection.oneway(command)
        else:
            connection.send_slices(command, (head, *data), 0)

    def drop_waiting(self) -> None:
        """Drop the messages that wait for bytes of the log."""
        self._cuts += 1
        self._waiting.clear()

    def ended(self, connection: Connection) -> None:
        """Connect again if ``connection`` was the connection of this link."""
        if connection is self._last:
            self._last, self._was_connected = None, True
            self._connection()

    def _connection(self) -> Connection | None:
        connection = self._pool.open_connection(self._address)
        if connection is None and self._connecting is None and not self._stopped:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return connection

    async def _connect(self) -> None:
        try:
            if self._failures:
                await asyncio.sleep(_BACKOFF.pause(self._failures - 1))
            self._last = await self._pool.connection(self._address)
            self._failures, self._was_connected = 0, False
        except RaptorMQError as error:
            if self._was_connected and isinstance(error.__cause__, ConnectionRefusedError):
                self._was_connected = False
                self._process_ended()
            if not self._failures:
                logger.info("cannot connect to the member at %s; retrying: %s", self._address, error)
            self._failures += 1
        finally:
            self._connecting = None
        # A follower sends nothing to other followers. Without a connection its first request for a vote would be lost.
        self._connection()

    async def stop(self) -> None:
        """Cancel the tasks of this connection."""
        self._stopped = True
        tasks = [task for task in (self._reading, self._connecting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Refusal = Callable[[Connection, RemotingCommand], str | None]


class Queries(Protocol):
    """The queries of other members that this member answers."""

    def describe(self, restarting: str = "") -> ReplicationState:
        """Return the status of this member with a verdict on the restart of a member."""

    def may_renew(self, member: str, stored: int | None) -> Verdict:
        """Return whether ``member`` may drop its log (:mod:`~raptormq.broker.replication.renewal`)."""

    async def history(self) -> LogHistory:
        """Return the topic history of the log. Raises :class:`StorageError` if this member does not lead."""

    async def read_range(self, begin: int, limit: int, most: int) -> bytes:
        """Return validated records of closed segments. Raises :class:`StorageError` if there are none."""

    async def digest(self, place: LogRange, digest: str) -> str:
        """Return the digest of the records of a range, and compare it with that of another member. Raises
        :class:`StorageError` if the range cannot be compared.
        """

    def copied(self, place: LogRange, size: int) -> CopiedRanges | None:
        """Return the parts of the first ``size`` bytes of a range that are no originals; None if this member does not
        vote, because its log is not the one of that identity.
        """


class Inbox:
    """Handles the messages of other members (RequestHandler)."""

    def __init__(
        self,
        own_id: str,
        group: str,
        members: Mapping[str, str],
        receive: Callable[[Sequence[Message]], None],
        refusal: Refusal,
        queries: Queries,
        fixed: FixedSettings | None = None,
    ) -> None:
        """Create the handler.

        Args:
            own_id: id of this member.
            group: name of the group (``dLegerGroup``).
            members: addresses of the other members by id.
            receive: passes messages that arrived together to the Raft library.
            refusal: access control; returns why a request is refused, or None.
            queries: answers requests for the status, the history and parts of the log.
            fixed: settings of this member; messages of members with other values are dropped.
        """
        self._own_id = own_id
        self._group = group
        self._members = members
        self._receive = receive
        self._refusal = refusal
        self._queries = queries
        self._fixed = fixed
        self._differences: dict[str, str] = {}
        self._other_groups: dict[str, str] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._logged: set[tuple[str, str]] = set()
        self.refused = 0
        """Number of refused frames."""

    @property
    def difference(self) -> str:
        """Which setting of another member makes this one drop its messages; empty if all are equal."""
        return next(iter((self._differences | self._other_groups).values()), "")

    def _note_other_group(self, request: RemotingCommand, group: str | None) -> None:
        """Note that a member of ``dLegerPeers`` belongs to another group."""
        with suppress(BodyError):
            message = decode(request.body, request.ext_fields)
            if message.sender in self._members and message.to == self._own_id:
                self._other_groups[message.sender] = (
                    f"dLegerGroup is {self._group} here and {group!s:.80} on {message.sender}:"
                    " it must be equal in a group"
                )

    def _differs(self, message: Message, fields: Mapping[str, str]) -> bool:
        """Return whether the sender of ``message`` has other settings, as it has last stated."""
        if self._fixed is not None and not fields.keys().isdisjoint(self._fixed.to_fields()):
            difference = self._fixed.difference(message.sender, fields)
            self._differences.pop(message.sender, None)
            if difference:
                self._differences[message.sender] = difference
        return message.sender in self._differences

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Handle messages (RequestHandler)."""
        received: list[Message] = []
        for each in requests:
            reason = self._accept(connection, each, received)
            if reason is not None:
                self._refuse(connection, reason)
        if received:
            self._receive(received)

    def _accept(self, connection: Connection, request: RemotingCommand, received: list[Message]) -> str | None:
        """Answer a query, or add a message to ``received``. Return why the request is refused, or None."""
        is_query = request.code in _QUERIES
        if not is_query and (request.code != RequestCode.REPLICATE or not request.is_oneway):
            return "the request is not a message between members of a group"
        if (reason := self._refusal(connection, request)) is not None:
            return reason
        if (group := request.ext_fields.get(_GROUP)) != self._group:
            self._note_other_group(request, group)
            return f"the message belongs to group {group!r:.80}, not to {self._group!r}"
        if request.code == RequestCode.DESCRIBE_REPLICATION:
            answer(connection, request, response_to(request, body=self._described(request.ext_fields).to_json()))
            return None
        if is_query:
            self._answer_later(connection, request)
            return None
        try:
            message = decode(request.body, request.ext_fields)
        except BodyError as error:
            return str(error)
        if message.sender not in self._members:
            return f"the sender {message.sender!r:.80} is not in dLegerPeers"
        if message.to != self._own_id:
            return f"the message is addressed to member {message.to!r:.80}, this is {self._own_id}"
        self._other_groups.pop(message.sender, None)
        if not self._differs(message, request.ext_fields):
            received.append(message)
        return None

    def _described(self, fields: Mapping[str, str]) -> ReplicationState:
        state = self._queries.describe(fields.get(_RESTARTING, ""))
        if (member := fields.get(_RENEWING)) is None:
            return state
        stored = fields.get(_STORED, "")
        renewal = self._queries.may_renew(member, int(stored) if stored.isdecimal() else None)
        return replace(state, renewal=renewal)

    def _answer_later(self, connection: Connection, request: RemotingCommand) -> None:
        if len(self._answering) >= _MAX_ANSWERING:
            answer(connection, request, response_to(request, ResponseCode.SYSTEM_BUSY, "too many requests: retry"))
            return
        send = self._send_history if request.code == RequestCode.GET_LOG_HISTORY else self._send_range
        task = asyncio.get_running_loop().create_task(send(connection, request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _send_history(self, connection: Connection, request: RemotingCommand) -> None:
        try:
            async with asyncio.timeout(_HISTORY_S):
                response = response_to(request, body=(await self._queries.history()).to_json())
        except StorageError as error:
            response = failure(request, error)
        except TimeoutError:
            response = response_to(request, ResponseCode.SYSTEM_BUSY, "the group has no majority now: retry")
        answer(connection, request, response)

    async def _send_range(self, connection: Connection, request: RemotingCommand) -> None:
        try:
            response = await self._range_response(request)
        except (BodyError, StorageError) as error:
            response = failure(request, error)
            if isinstance(error, NoValidCopy):
                response.ext_fields[_LACKS] = "true"
        answer(connection, request, response)

    async def _range_response(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        begin, limit = (parse_integer(fields.get(name)) for name in (_BEGIN, _LIMIT))
        log, digest = fields.get(_LOG, ""), fields.get(_DIGEST)
        if digest is not None:
            response = response_to(request)
            response.ext_fields[_DIGEST] = await self._queries.digest(LogRange(begin, limit, log), digest)
            return response
        response = response_to(request, body=await self._queries.read_range(begin, limit, RANGE_BYTES))
        place = LogRange(begin, limit, log)
        if log and (copied := self._queries.copied(place, len(response.body))) is not None:
            response.ext_fields[_COPIED] = copied.to_text()
        return response

    async def stop(self) -> None:
        """Cancel the responses in progress."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _refuse(self, connection: Connection, reason: str) -> None:
        self.refused += 1
        key = (connection.peer[0], reason)
        if key not in self._logged and len(self._logged) < MAX_WAITING:
            self._logged.add(key)
            logger.warning("refused a message from %s on the port of the group: %s", connection.peer_name, reason)
        connection.close()

    def closed(self, connection: Connection) -> None:
        """Count invalid frames (RequestHandler)."""
        self.refused += connection.has_failed
