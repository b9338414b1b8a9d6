"""Questions of brokers about transactions that were left open (39), answered by the producers of a client.

    broker --39--> group's `check` --> COMMIT or ROLLBACK --37--> the same broker
                                   `-> UNKNOWN, an error, or the local transaction still runs: no answer, the
                                       broker asks again

Neighbours: `transaction_producer` registers its `check`, all producers of an `instance` share the table.
Source: RocketMQ
`ClientRemotingProcessor.checkTransactionState`, `DefaultMQProducerImpl.checkTransactionState`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable

from raptormq.client.async_functions import awaitable
from raptormq.client.background import background, cancel_all
from raptormq.client.instance import ClientInstance
from raptormq.client.received import decode_messages
from raptormq.errors import ClientError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.transaction import (
    COMMIT,
    NOT_DECIDED,
    ROLLBACK,
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.record import decode_record
from raptormq.transport.connection import Connection

log = get_logger(__name__)

MAX_CHECKS = 2_000
"""Questions that are being answered at a time; the broker repeats one that is dropped."""


class TransactionState(enum.Enum):
    """What has become of a local transaction."""

    COMMIT = COMMIT
    """Consumers get the message."""
    ROLLBACK = ROLLBACK
    """Nobody gets it."""
    UNKNOWN = NOT_DECIDED
    """The broker asks later."""


Check = Callable[[MessageExt], Awaitable[TransactionState]]
"""An `async` function that looks up what became of a message's transaction."""


async def state_of(
    answer: Awaitable[TransactionState | None], what: str, nothing: TransactionState | None = None
) -> TransactionState:
    """Return what an application's function says has become of a transaction; `nothing` is what `None` stands for.

    Raises:
        ClientError: it is not an async function, or says something else.
    """
    state = await awaitable(answer, what)
    if state is None and nothing is not None:
        return nothing
    if not isinstance(state, TransactionState):
        raise ClientError(f"{what} returns a TransactionState{' or None' if nothing else ''}, not {state!r}")
    return state


class TransactionChecks:
    """The checks of one client's producers, by group."""

    def __init__(self, instance: ClientInstance) -> None:
        self._keys = instance.config.keys
        self._checks: dict[str, list[Check]] = {}
        """By group, one for each producer of it here."""
        self.executing: set[str] = set()
        """Ids of the messages whose local transactions run, or whose ends a broker is being told, of all producers."""
        self._tasks: set[asyncio.Task[None]] = set()
        instance.router.add(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, self._asked)

    def join(self, group: str, check: Check) -> None:
        """Answer for a group from now on; of several producers of a group the last one answers."""
        self._checks.setdefault(group, []).append(check)

    async def leave(self, group: str, check: Check) -> None:
        """Answer no more for one producer; after the last of the client what is being looked up is given up."""
        self._checks[group].remove(check)
        if not self._checks[group]:
            del self._checks[group]
        if not self._checks:
            await cancel_all(self._tasks)

    def _asked(
        self, connection: Connection, command: RemotingCommand, header: CheckTransactionStateRequestHeader
    ) -> None:
        half = decode_record(command.body)
        queue = MessageQueue(half.topic, header.broker_name or "", half.queue_id)
        (message,) = decode_messages(command.body, queue, keys=self._keys)
        group = message.properties.get(names.PRODUCER_GROUP, "")
        if message.message_id in self.executing:
            return  # it is not decided yet, and a check that finds nothing would end it
        checks = self._checks.get(group)
        if not checks or len(self._tasks) >= MAX_CHECKS:
            log.warning("nobody looks what became of transaction %s of group %s", message.message_id, group)
            return
        answer = self._answer(connection, header, group, checks[-1], message)
        task = background(answer, f"check of transaction {message.message_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self,
        connection: Connection,
        header: CheckTransactionStateRequestHeader,
        group: str,
        check: Check,
        message: MessageExt,
    ) -> None:
        try:
            state = await state_of(check(message), "the check of transactions")
        except Exception:
            log.exception("the check of transaction %s of group %s failed", message.message_id, group)
            return
        if state is TransactionState.UNKNOWN:
            return
        decision = EndTransactionRequestHeader(
            producer_group=group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            topic=message.topic,
            broker_name=header.broker_name,
        )
        connection.oneway(request(RequestCode.END_TRANSACTION, decision, oneway=True))
