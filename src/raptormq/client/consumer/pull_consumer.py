"""`PullConsumer`: reads queues that the caller chooses, from offsets that the caller chooses.

    async with PullConsumer(name_servers="127.0.0.1:9876", group="reports") as consumer:
        consumer.assign(await consumer.queues("orders"))
        for message in await consumer.poll(timeout=5):
            ...
        await consumer.commit()

Queues are not shared with other members of the group, but committed offsets are the group's. `pull` returns the stored
records undecoded, for readers that decode many at once. See also: `consumer.pull`, `consumer.queue_reader`. Source:
RocketMQ `DefaultLitePullConsumer`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

from raptormq.client.cluster import ClientInstance, QueueOffset
from raptormq.client.config import ClientConfig, ConsumeFromWhere
from raptormq.client.consumer.offset_commits import commit_in_order
from raptormq.client.consumer.pull import LATE_RESPONSE_S, UNHELD_PAUSE_S, PullRequest, PullResult, PullStatus, pull
from raptormq.client.consumer.queue_bounds import QueueQueries
from raptormq.client.consumer.queue_reader import CrcRetry, start_offset
from raptormq.client.consumer.subscription import Sql, subscription_to
from raptormq.client.lifecycle import require_loop
from raptormq.client.message import as_queues, decode_batches, message_count
from raptormq.client.settings import LONG_MAX, Milliseconds, SecondsOrZero, check_setting, checked_timeout
from raptormq.errors import (
    ClientError,
    KeyMissing,
    NoRoute,
    RaptorMQError,
    RecordError,
    ServerError,
    TransportError,
)
from raptormq.logs import get_logger
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.protocol.topic_names import check_group

log = get_logger(__name__)

_DEFAULT_GROUP = "TOOLS_CONSUMER"
_POLL_SUSPEND_S = 15.0
_POLL_COUNT = 32
_RETRY_PAUSE_S = 1.0


class PullConsumer(QueueQueries):
    """Reads assigned queues.

    Args:
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        group: the group whose offsets `commit` stores; without it nothing can be committed.
        consume_from: where `poll` starts in a queue without a position and without a committed offset; unlike
            `PushConsumer`, also on a young topic.
        consume_from_ms: with `TIMESTAMP`: milliseconds since 1970.
        expression: tags wanted by `poll`, `*` or `A || B`, or `Sql` for a filter by properties.
        client_config: shared connections.

    Raises:
        MessageError: `group` is not a group name, or `expression` is not a valid expression.
        ConfigError: an address is not `host:port`, or another argument is invalid.
    """

    def __init__(
        self,
        *,
        name_servers: Sequence[str] | str | None = None,
        group: str | None = None,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.FIRST,
        consume_from_ms: int = 0,
        expression: str | Sql = "*",
        client_config: ClientConfig | None = None,
    ) -> None:
        if group is not None:
            check_group(group)
        subscription_to("", expression, 0)
        check_setting("consume_from", consume_from, ConsumeFromWhere)
        check_setting("consume_from_ms", consume_from_ms, Milliseconds)
        super().__init__("pull consumer", ClientConfig.choose(client_config, name_servers))
        self._group = group
        self._consume_from = consume_from
        self._consume_from_ms = consume_from_ms
        self._expression = expression
        self._positions: dict[MessageQueue, int | None] = {}
        self._topic_ids: dict[MessageQueue, str | None] = {}
        """Ids of the topics that the positions belong to, where known."""
        self._pulls: dict[MessageQueue, asyncio.Task[PullResult]] = {}
        self._failures: dict[MessageQueue, RaptorMQError] = {}
        self._crc_retries: defaultdict[MessageQueue, CrcRetry] = defaultdict(CrcRetry)

    async def close(self) -> None:
        """Stop reading, without a commit; does nothing when it is closed. A cancelled close continues in the
        background.
        """
        instance = self._instance
        if instance is None:
            await self._shutdown.wait()
        else:
            require_loop(instance.loop)
            pulls, self._instance = list(self._pulls.values()), None
            self.assign([])
            await self._shutdown.run(self._end(instance, pulls))

    async def _end(self, instance: ClientInstance, pulls: Iterable[asyncio.Task[PullResult]]) -> None:
        await asyncio.gather(*pulls, return_exceptions=True)
        await instance.release()

    # --- reading one queue at will ---

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        suspend_ms: int = 0,
        expression: str | Sql = "*",
        topic_id: str | None = None,
    ) -> PullResult:
        """Read from `offset` without changing assignments or positions.

        Args:
            queue: the queue to read.
            offset: the first offset to read.
            max_count: maximum number of messages; brokers have limits of their own (32 by default). A RaptorMQ broker
                counts the messages of stored batches, others return at least one batch.
            max_bytes: maximum size of the messages in bytes; a hint.
            timeout: seconds; default: the request timeout, and with `suspend_ms` also the suspension and 5 s, because
                brokers end a suspension late.
            suspend_ms: how long the broker may wait for a message when there is none.
            expression: wanted tags, `*` or `A || B` (brokers compare hashes only), or `Sql`.
            topic_id: fail if the topic has another id, see `topic_id()`.

        Raises:
            NoRoute: no broker that has the queue is up.
            TransportError: the broker did not respond in time.
            ServerError: the broker refuses; 31002 when the topic has another id.
            ClientClosed: not started, or closed.
        """
        instance = self._started_instance()
        if timeout is None:
            timeout = instance.config.request_timeout + (suspend_ms / 1000 + LATE_RESPONSE_S if suspend_ms else 0)
        checked_timeout(timeout)
        subscription = subscription_to(queue.topic, expression, 0)
        group = self._group or _DEFAULT_GROUP
        wanted = PullRequest(
            group,
            queue,
            offset,
            max_count,
            subscription,
            True,
            suspend_ms,
            max_bytes,
            None,
            instance.config.keys,
            topic_id,
        )
        return await self._call_broker(queue, lambda address: pull(instance.pool, address, wanted, timeout))

    # --- reading what is assigned ---

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others. Queues that were assigned before keep their positions.

        Raises:
            ClientError: a value is not a queue.
        """
        wanted = as_queues(queues)
        for queue in set(self._positions) - wanted:
            self._drop_pull(queue)
            self._topic_ids.pop(queue, None)
            del self._positions[queue]
        for queue in sorted(wanted - set(self._positions)):
            self._positions[queue] = None

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, in order."""
        return sorted(self._positions)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next `poll` read an assigned queue from `offset`.

        Raises:
            ClientError: the queue is not assigned, or the offset is not a number from 0.
        """
        if queue not in self._positions:
            raise ClientError(f"{queue} is not assigned")
        wanted: object = offset
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= LONG_MAX:
            raise ClientError(f"the offset must be a 64-bit integer of at least 0, not {offset!r}")
        self._drop_pull(queue)
        self._topic_ids.pop(queue, None)
        self._positions[queue] = offset

    def position(self, queue: MessageQueue) -> int | None:
        """Return the next offset that `poll` reads, `None` before the first poll of an assigned queue."""
        return self._positions.get(queue)

    async def poll(self, timeout: float = 5.0) -> list[MessageExt]:
        """Return the next messages of the assigned queues, in order per queue; empty if none arrived within `timeout`
        seconds.

        Every queue has one pending request, also between polls. Requests to an unreachable broker are repeated every
        second. An outage is an error only if it lasts until the timeout and no other queue has messages.

        Raises:
            TransportError, NoRoute: a queue could not be reached, and no other queue had messages.
            ServerError: a broker refuses.
            RecordError: a message or a batch is damaged; the next poll continues after a message whose body alone is
                damaged.
            KeyMissing: a message is encrypted with a key that the client does not have.
            ConfigError: the timeout is not a number from 0.
            ClientClosed: not started, or closed.
        """
        self._started_instance()
        check_setting("timeout", timeout, SecondsOrZero)
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            for queue in self._positions:
                if queue not in self._pulls:
                    self._pulls[queue] = asyncio.create_task(self._pull_next(queue), name=f"pull {queue}")
            if self._pulls:
                left = max(deadline - clock(), 0.0)
                await asyncio.wait(self._pulls.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            messages = self._collect()
            if messages:
                return messages
            if not self._positions or clock() >= deadline:
                for failure in self._failures.values():
                    raise failure
                return []

    async def commit(self) -> None:
        """Commit the positions of all assigned queues for the group.

        Raises:
            ClientError: the consumer has no group.
            TransportError, ServerError, NoRoute: a broker did not accept a position; all others were tried.
        """
        offsets, group = self._started_instance().offsets, self._require_group()

        async def store(queue: MessageQueue, offset: int) -> None:
            topic_id = self._topic_ids.get(queue)
            await self._call_broker(queue, lambda address: offsets.commit(address, group, queue, offset, topic_id))

        positions = {queue: offset for queue, offset in self._positions.items() if offset is not None}
        for failure in (await commit_in_order(positions, store)).values():
            raise failure

    # --- inside ---

    def _collect(self) -> list[MessageExt]:
        messages: list[MessageExt] = []
        for queue, task in list(self._pulls.items()):
            if not task.done() or (messages and task.exception() is not None):
                continue  # a failure is left for the next poll: the messages found must be returned
            del self._pulls[queue]
            try:
                wanted, next_offset = self._readable(task.result(), queue, may_fail=not messages)
            except (TransportError, NoRoute) as failure:
                log.info("cannot read %s; retrying: %s", queue, failure)
                self._failures[queue] = failure.with_traceback(
                    None
                )  # otherwise it keeps the messages of this poll in memory
                continue
            except Exception:
                if not messages:
                    raise
                self._pulls[queue] = task  # left for the next poll: the positions of the found messages have advanced
                continue
            messages += wanted
            self._positions[queue] = next_offset
        return messages

    def _readable(self, result: PullResult, queue: MessageQueue, *, may_fail: bool) -> tuple[list[MessageExt], int]:
        """Return the messages before the first one that cannot be read, and the next offset.

        Raises:
            RecordError: the first message cannot be read. If `may_fail`, the position moves past a message with a
                damaged body; past a message with a wrong CRC only when it fails again.
            KeyMissing: the same, but the position stays.
        """
        if result.status is not PullStatus.FOUND:
            return [], result.next_offset
        unread: list[tuple[StoredMessage, RecordError | KeyMissing]] = []

        def stop(record: StoredMessage, error: RecordError | KeyMissing) -> bool:
            unread.append((record, error))
            return False

        tags = subscription_to(queue.topic, self._expression, 0).tags
        batches = decode_batches(result.body, queue, result.offset, tags, stop, result.keys, lazily=False)
        found = [message for batch in batches for message in batch]
        if not unread:
            return found, result.next_offset
        [(record, error)] = unread
        offset = record.queue_offset
        if found:
            return found, offset
        if isinstance(error, KeyMissing):
            raise error
        if self._crc_retries[queue].should_retry_crc(offset, error):
            if may_fail:
                self._crc_retries[queue].remember(offset)
            raise RecordError(f"the message at offset {offset} of {queue} is damaged: {error}") from error
        if may_fail:
            self._positions[queue] = offset + message_count(record)
        raise RecordError(
            f"the message at offset {offset} of {queue} cannot be read and is skipped: {error}"
        ) from error

    async def _pull_next(self, queue: MessageQueue) -> PullResult:
        instance = self._started_instance()
        if queue in self._failures:
            await asyncio.sleep(_RETRY_PAUSE_S)
        offset = self._positions[queue]
        if offset is None:
            start = await self._call_broker(queue, lambda address: self._start_offset(address, queue))
            offset = self._positions[queue] = start.offset
            self._topic_ids[queue] = start.topic_id
        # A pull without a response may be held or lost; a broker that can be reached again has recovered.
        await self._call_broker(queue, instance.pool.connection)
        self._failures.pop(queue, None)
        subscription = subscription_to(queue.topic, self._expression, 0)
        group = self._group or _DEFAULT_GROUP
        wanted = PullRequest(
            group,
            queue,
            offset,
            _POLL_COUNT,
            subscription,
            True,
            int(_POLL_SUSPEND_S * 1000),
            keys=instance.config.keys,
            topic_id=self._topic_ids.get(queue) or TOPIC_ID_QUERY,
        )
        timeout = instance.config.request_timeout + _POLL_SUSPEND_S + LATE_RESPONSE_S
        try:
            result = await self._call_broker(
                queue, lambda address: pull(instance.pool, address, wanted, timeout, UNHELD_PAUSE_S)
            )
        except ServerError as error:
            if error.code != ResponseCode.TOPIC_RECREATED:
                raise
            log.warning(
                "%s: %s; poll continues as set by consume_from instead of at offset %d", queue, error.remark, offset
            )
            self._positions[queue] = None
            return await self._pull_next(queue)
        self._topic_ids[queue] = result.topic_id
        return result

    async def _start_offset(self, address: str, queue: MessageQueue) -> QueueOffset:
        offsets = self._started_instance().offsets
        return await start_offset(offsets, address, self._group, queue, self._consume_from, self._consume_from_ms)

    def _drop_pull(self, queue: MessageQueue) -> None:
        self._failures.pop(queue, None)
        task = self._pulls.pop(queue, None)
        if task is not None and not task.cancel() and not task.cancelled():
            task.exception()  # mark the failure as retrieved
