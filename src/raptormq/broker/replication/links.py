"""The connections between the members of a group: messages out and in, over the ports of ``dLegerPeers``.

Raft takes a lost message for what it is, so nothing here waits: what cannot be sent now is dropped. Each member makes a
connection of its own to each other one, for what it sends; answers are messages, too. A range of the log leaves as
slices of its mapping. Where its pages are not in memory a thread reads them first, and later messages for the same
member wait behind it, at most :data:`MAX_WAITING`.

What comes is handed on if it is a message of the member's group from one of its members, else refused: counted, and
logged once for each peer and reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from raptormq.broker.replication.codec import decode, encode_head
from raptormq.broker.replication.group_member import InThread
from raptormq.errors import BodyError, RaptorMQError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import CommandFlag, RemotingCommand, SerializeType
from raptormq.protocol.signing import Credentials
from raptormq.raft import Append, Message
from raptormq.storage.fs import Buffer, PagesMissing
from raptormq.storage.replica import Replica
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.timing import Backoff
from raptormq.transport.tls import ClientTls

logger = get_logger(__name__)

MAX_WAITING = 1_000
"""Messages for one member that wait for a range to be read from the disk; more are dropped."""
_OWED_BYTES = 64 << 20
_CONNECT_S = 1.0
_BACKOFF = Backoff(0.05, 1.0)
_GROUP = "group"


class Links:
    """Sends to the other members."""

    def __init__(
        self,
        group: str,
        addresses: Mapping[str, str],
        replica: Replica,
        in_thread: InThread,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """``addresses`` are those of the members by id; with ``credentials`` every message is signed.

        Raises:
            ConfigError: a file of ``tls`` cannot be used.
        """
        limits = ConnectionLimits(
            max_owed_bytes=_OWED_BYTES, write_high_water_bytes=_OWED_BYTES // 2, credentials=credentials
        )
        pool = ConnectionPool(None, limits, _CONNECT_S, tls)
        self._pool = pool
        self._links = {
            member: _Link(address, group, pool, replica, in_thread, signs=credentials is not None)
            for member, address in addresses.items()
        }

    def send(self, message: Message) -> None:
        """See :class:`~raptormq.broker.replication.group_member.Outbox`."""
        link = self._links.get(message.to)
        if link is not None:
            link.send(message)

    def log_is_cut(self) -> None:
        """See :class:`~raptormq.broker.replication.group_member.Outbox`."""
        for link in self._links.values():
            link.forget_waiting()

    async def close(self) -> None:
        """Close the connections; nothing is sent afterwards."""
        for link in self._links.values():
            await link.stop()
        await self._pool.close(0.2)


class _Link:
    """Messages to one member, in order."""

    def __init__(
        self, address: str, group: str, pool: ConnectionPool, replica: Replica, in_thread: InThread, *, signs: bool
    ) -> None:
        self._address = address
        self._group = group
        self._pool = pool
        self._replica = replica
        self._in_thread = in_thread
        self._signs = signs
        self._waiting: deque[Message] = deque()
        self._cuts = 0
        self._reading: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._stopped = False

    def send(self, message: Message) -> None:
        """Send now, or behind what waits, or never."""
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
            logger.warning("cannot send %s: %s", message, error)

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
            logger.warning("cannot read what the member at %s lacks: %s", self._address, error)
        finally:
            self._reading = None

    def _send(self, connection: Connection, message: Message, data: Sequence[Buffer]) -> None:
        if connection.is_clogged:
            return
        command = RemotingCommand(
            RequestCode.REPLICATE,
            {_GROUP: self._group},
            flag=CommandFlag.ONEWAY,
            serialize_type=SerializeType.ROCKETMQ,
        )
        head = encode_head(message)
        if self._signs or not data:
            command.body = b"".join((head, *data))
            connection.oneway(command)
        else:
            connection.send_slices(command, (head, *data), 0)

    def forget_waiting(self) -> None:
        """Drop what waits for bytes of the log."""
        self._cuts += 1
        self._waiting.clear()

    def _connection(self) -> Connection | None:
        connection = self._pool.open_connection(self._address)
        if connection is None and self._connecting is None and not self._stopped:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return connection

    async def _connect(self) -> None:
        try:
            if self._failures:
                await asyncio.sleep(_BACKOFF.pause(self._failures - 1))
            await self._pool.connection(self._address)
            self._failures = 0
        except RaptorMQError as error:
            if not self._failures:
                logger.info("no connection to the member at %s: %s", self._address, error)
            self._failures += 1
        finally:
            self._connecting = None

    async def stop(self) -> None:
        """End."""
        self._stopped = True
        tasks = [task for task in (self._reading, self._connecting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Refusal = Callable[[Connection, RemotingCommand], str | None]


class Inbox:
    """Takes what other members send (RequestHandler)."""

    def __init__(
        self, own_id: str, group: str, members: Mapping[str, str], step: Callable[[Message], None], refusal: Refusal
    ) -> None:
        """``refusal`` says why a request is not accepted, None where it is: access control."""
        self._own_id = own_id
        self._group = group
        self._members = members
        self._step = step
        self._refusal = refusal
        self._told: set[tuple[str, str]] = set()
        self.refused: Counter[str] = Counter()
        """Frames that were refused, by reason."""

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Take messages (RequestHandler)."""
        for request in requests:
            reason = self._take(connection, request)
            if reason is not None:
                self._refuse(connection, reason)

    def _take(self, connection: Connection, request: RemotingCommand) -> str | None:
        if request.code != RequestCode.REPLICATE or not request.is_oneway:
            return "it is no message between members of a group"
        if (reason := self._refusal(connection, request)) is not None:
            return reason
        if (group := request.ext_fields.get(_GROUP)) != self._group:
            return f"it is of the group {group!r:.80}, not of {self._group!r}"
        try:
            message = decode(request.body)
        except BodyError as error:
            return str(error)
        if message.sender not in self._members:
            return f"{message.sender!r:.80} is not in dLegerPeers"
        if message.to != self._own_id:
            return f"it is for member {message.to!r:.80}, and this one is {self._own_id}"
        self._step(message)
        return None

    def _refuse(self, connection: Connection, reason: str) -> None:
        self.refused[reason] += 1
        key = (connection.peer[0], reason)
        if key not in self._told and len(self._told) < MAX_WAITING:
            self._told.add(key)
            logger.warning("refused a message from %s on the port of the group: %s", connection.peer_name, reason)
        connection.close()

    def closed(self, connection: Connection) -> None:
        """Nothing to forget (RequestHandler)."""
