"""Sending of prepared messages, and recall of messages with a delivery time.

`MessageSender` runs the attempts of one send: it selects the broker, pauses between attempts, and gives up. After a
failure, a message without a queue goes to another broker. A message for a queue or with a key is sent to the same queue
again, after a pause. An attempt that timed out may have been stored, so a message can be stored twice with the same
unique id; it is never lost without an error. If a broker reports that the queue does not exist, because the topic was
recreated with fewer queues, and the refreshed route confirms this, the message is sent to another queue.

`recall` asks the broker of a message with a delivery time to cancel it.

See also: `message.send_request` prepares messages, `producer.queue_selector` selects queues, `producer.attempts`
limits the number and the time of attempts, `producer.producer` is the interface of the application. Source: RocketMQ
`DefaultMQProducerImpl.sendDefaultImpl`, `DefaultMQProducer.recallMessage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from raptormq.client.cluster import ClientInstance, TopicQueues, require_success
from raptormq.client.config import ProducerConfig
from raptormq.client.description import BrokerDescription
from raptormq.client.lifecycle import require_loop
from raptormq.client.message import Encryptor, SendRequest, check_destination, check_encrypted_size, check_sendable
from raptormq.client.producer.attempts import Attempts
from raptormq.client.producer.broker_features import BatchSupport
from raptormq.client.producer.in_flight import InFlight
from raptormq.client.producer.queue_selector import BrokerHealth, RoundRobin, pick_by_key
from raptormq.client.results import SendResult, SendStatus
from raptormq.errors import (
    ClientClosed,
    ConnectError,
    ConnectionClosed,
    NoRoute,
    RaptorMQError,
    RequestTimeout,
    SendAttempt,
    ServerError,
    TransportError,
)
from raptormq.logs import get_logger
from raptormq.protocol.codes import SEND_RETRY_CODES, RequestCode, ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand, request
from raptormq.protocol.headers.recall import RecallMessageRequestHeader, RecallMessageResponseHeader
from raptormq.protocol.headers.send import DEFAULT_REGION, SendMessageRequestHeaderV2, SendMessageResponseHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.recall_handle import decode_recall_handle
from raptormq.protocol.schema import decode_header, encode_header
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC

log = get_logger(__name__)


async def recall(instance: ClientInstance, group: str, topic: str, handle: str, timeout: float) -> str:
    """Request the cancellation of a message from its broker. Return the id of the message.

    Raises:
        MessageError: the handle is not valid.
        NoRoute: the topic or the broker is not known.
        TransportError, ServerError: no response, or a refusal.
    """
    broker_name = decode_recall_handle(handle).broker_name
    # The message may have been sent by the route of the default topic, which also contains the broker.
    known = instance.routes.cached(topic)
    address = None if known is None else known.master(broker_name)
    if address is None:
        address = (await instance.routes.find(topic)).master(broker_name)
    if address is None:
        raise NoRoute(f"broker {broker_name} has no master now")
    header = RecallMessageRequestHeader(topic, handle, group, broker_name)
    response = await instance.pool.request(address, request(RequestCode.RECALL_MESSAGE, header), timeout)
    return decode_header(RecallMessageResponseHeader, require_success(response, address).ext_fields).msg_id


STATUSES = {status.value: status for status in SendStatus}
"""Send status by response code, for messages that were stored."""
# Wire names of the fields of SendMessageRequestHeaderV2 that differ from message to message.
_SYS_FLAG, _BORN_TIMESTAMP, _FLAG, _PROPERTIES, _RECONSUME_TIMES, _MAX_RECONSUME_TIMES, _BATCH = "fghijlm"
_ONEWAYS_PER_YIELD = 64
_LOOK_S = 0.5
"""Interval in seconds at which a send that waits for a broker checks whether its caller still waits."""


class MessageSender:
    """Sends prepared messages for one producer group."""

    def __init__(self, instance: ClientInstance, group: str, config: ProducerConfig) -> None:
        self._instance = instance
        self._in_flight = instance.shared(InFlight.of)
        self._loop = instance.loop
        self._routes = instance.routes
        self._group = group
        self._config = config
        self._health = BrokerHealth(config.avoid_failed_broker)
        self._round_robins: dict[str, RoundRobin] = {}
        self._oneways = 0
        self.batch_support = BatchSupport(brokers=self._brokers_of)
        keys = instance.config.keys
        self.encryptor = Encryptor(keys, config) if config.encrypt and keys is not None else None
        self._common_fields: dict[MessageQueue, dict[str, str]] = {}

    async def send(
        self,
        outgoing: SendRequest,
        queue: MessageQueue | None,
        key: str | None,
        timeout: float,
        is_awaited: Callable[[], bool] | None = None,
    ) -> SendResult:
        """Send until a broker has stored the message, the attempts or the time are exhausted, or the caller no longer
        waits. `is_awaited` returns whether the caller still waits; None if the caller cancels the coroutine instead.

        Raises:
            MessageError: `queue` is not a queue or belongs to another topic, or the encrypted message is too large.
            ClientClosed: called in another event loop than that of the client, or the client was closed.
            NoRoute: no broker serves the topic.
            TransportError: the last attempt found no broker or got no response in time.
            ServerError: A broker rejected the message permanently, or the last attempt was rejected.
        """
        require_loop(self._loop)
        check_destination(queue, outgoing.topic, key)
        outgoing = self.encrypt(outgoing)
        clock = self._loop.time
        deadline = clock() + timeout
        pool, in_flight = self._instance.pool, self._in_flight
        size, failed = len(outgoing.body), list[SendAttempt]()
        attempts = Attempts(self._config.retries, deadline, clock, is_awaited)
        while True:
            topic_queues: TopicQueues | None = None
            target: MessageQueue | None = None
            address: str | None = None
            asked, began = None, clock()
            try:
                topic_queues = self._routes.cached(outgoing.topic)
                if topic_queues is None or not topic_queues.write_queues:
                    topic_queues = await self.find(outgoing.topic, deadline - clock())
                target = queue or self._pick(topic_queues, key, clock(), attempts.tried, outgoing)
                address = master_of(topic_queues, target)
                if not in_flight.try_acquire(size):
                    await self.acquire_in_flight(size, deadline)
                try:
                    left = attempts.attempt_timeout()
                    connection = pool.open_connection(address)
                    if connection is None:
                        end = clock() + left
                        connection = await pool.connection_within(address, left)
                        left = max(end - clock(), 0.0)
                    asked = clock()
                    response = await connection.request(self._command(outgoing, target), left)
                finally:
                    in_flight.release(size)
                self.note_latency(target.broker_name, asked)
                return self._result(outgoing, target, address, response)
            except ClientClosed as error:  # raised before the request: no attempt
                raise error.after(failed) from error.__cause__
            except RaptorMQError as error:
                failed.append(failed_attempt(error, target, address, clock() - began, is_sent=asked is not None))
                self.note_failure(outgoing.topic, target, error, clock())
                is_next = is_retriable(error) or (queue is None and await self._is_queue_gone(target, error, deadline))
                pinned = queue or (target if key is not None else None)
                is_next = is_next and await self._wait_for_next(
                    error, outgoing.topic, topic_queues, target, pinned, attempts
                )
                if not (is_next and attempts.is_awaited()):
                    raise error.with_attempts(failed) from error.__cause__

    async def send_once(self, outgoing: SendRequest, target: MessageQueue, address: str, timeout: float) -> SendResult:
        """Send once to the broker at `address`. The caller has encrypted `outgoing` if necessary.

        Raises:
            TransportError, ServerError: no response, or a refusal.
        """
        response = await self._instance.pool.request(address, self._command(outgoing, target), timeout)
        return self._result(outgoing, target, address, response)

    async def queue_of(self, topic: str, key: str | None, timeout: float) -> MessageQueue | None:
        """Return the queue of a key; None without a key.

        Raises:
            MessageError: the topic is not a topic name.
            NoRoute: no broker serves the topic.
            TransportError: no name server responded in time.
        """
        if key is None:
            return None
        require_loop(self._loop)
        check_sendable(topic)
        found = self._routes.cached(topic)
        if found is None or not found.write_queues:
            found = await self.find(topic, timeout)
        return pick_by_key(found.write_queues, key)

    def encrypt(self, outgoing: SendRequest) -> SendRequest:
        """Encrypt a message, or each message of a batch, if this producer encrypts.

        Raises:
            ConfigError: there is no key to encrypt with.
            MessageError: the encrypted message is larger than brokers accept.
        """
        if self.encryptor is None:
            return outgoing
        return check_encrypted_size(self.encryptor.encrypt(outgoing), self._config)

    async def send_oneway(
        self, outgoing: SendRequest, queue: MessageQueue | None, key: str | None, timeout: float
    ) -> None:
        """Send without a response. Whether the broker stores the message is unknown.

        Raises:
            MessageError: `queue` is not a queue or belongs to another topic, or the encrypted message is too large.
            ClientClosed: called in another event loop than that of the client.
            NoRoute: no broker serves the topic.
            TransportError: the message was not sent: no connection was made in time, or the broker does not read.
        """
        require_loop(self._loop)
        check_destination(queue, outgoing.topic, key)
        outgoing = self.encrypt(outgoing)
        clock = self._loop.time
        deadline = clock() + timeout
        topic_queues = self._routes.cached(outgoing.topic) or await self.find(outgoing.topic, timeout)
        target = queue or self._pick(topic_queues, key, clock(), set(), outgoing)
        command = self._command(outgoing, target, oneway=True)
        address = master_of(topic_queues, target)
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._instance.pool.connection(address)
                await connection.drained()  # without responses, a dead connection would not be detected
        except TimeoutError:
            what = f"{address} could not be reached, or has not read what was sent before, within {timeout:g} s"
            raise RequestTimeout(f"a oneway message was not sent: {what}") from None
        connection.oneway(command)
        self._oneways += 1
        if self._oneways % _ONEWAYS_PER_YIELD == 0:
            await asyncio.sleep(0)  # otherwise a loop of oneway sends would never yield for the transport

    def describe_brokers(self) -> tuple[BrokerDescription, ...]:
        """Return the brokers of the known topics, in the order of their names."""
        now, addresses = self._loop.time(), dict[str, str | None]()
        for found in self._routes.all_cached():
            addresses |= {name: found.master(name) for name in found.brokers}
        return tuple(
            BrokerDescription(name, address, self._health.avoided_seconds(name, now), self._health.latency(name))
            for name, address in sorted(addresses.items())
        )

    def _result(
        self, outgoing: SendRequest, target: MessageQueue, address: str, response: RemotingCommand
    ) -> SendResult:
        status = STATUSES.get(response.code)
        if status is None:
            self.note_refusal(outgoing, target, response.code)
            raise ServerError(response.code, response.remark, address)
        header = decode_header(SendMessageResponseHeader, response.ext_fields)
        self.note_success(outgoing, target, whole=header.batch_uniq_id is not None)
        if header.queue_id != target.queue_id:
            target = MessageQueue(target.topic, target.broker_name, header.queue_id)
        return SendResult(
            status,
            outgoing.message_id,
            header.msg_id,
            target,
            header.queue_offset,
            header.recall_handle,
            header.region_id or DEFAULT_REGION,
            header.trace_on,
        )

    def note_latency(self, broker_name: str, asked: float) -> None:
        """Record the latency of a broker's response to a request sent at `asked` (loop time), if slow brokers are
        avoided.
        """
        if self._config.avoid_slow_brokers:
            now = self._loop.time()
            self._health.responded(broker_name, now - asked, now)

    def note_success(self, outgoing: SendRequest, target: MessageQueue, *, whole: bool) -> None:
        """Record a success. `whole`: the batch was stored as one message."""
        if self._health.any_avoided and not self._config.avoid_slow_brokers:
            self._health.succeeded(target.broker_name)
        if self._routes.uses_default_route:
            self._routes.note_sent(outgoing.topic)
        if outgoing.code == RequestCode.SEND_BATCH_MESSAGE:
            self.batch_support.note_answer(outgoing.topic, target.broker_name, whole=whole)

    def note_refusal(self, outgoing: SendRequest, target: MessageQueue, code: int) -> None:
        """Record the rejection of a batch: the broker supports no batches, or not batches of this form."""
        if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and outgoing.code == RequestCode.SEND_BATCH_MESSAGE:
            self.batch_support.note_batches_refused(target.broker_name)
        if code != ResponseCode.MESSAGE_ILLEGAL or not outgoing.count:
            return
        if outgoing.code != RequestCode.SEND_BATCH_MESSAGE:
            self.batch_support.note_inner_batch_refused(outgoing.topic, target.broker_name)
        elif outgoing.sys_flag:
            self.batch_support.note_compressed_messages_refused(outgoing.topic, target.broker_name)

    def _brokers_of(self, topic: str) -> Collection[str]:
        known = self._routes.cached(topic)
        return () if known is None else known.writable_brokers

    def _command(self, outgoing: SendRequest, target: MessageQueue, *, oneway: bool = False) -> RemotingCommand:
        """Return the request. Fields shared by all messages of a queue are encoded once."""
        common = self._common_fields.get(target)
        if common is None:
            common = self._common_fields[target] = self._encode_common_fields(target)
        ext_fields = common.copy()
        ext_fields[_BORN_TIMESTAMP] = str(outgoing.born_ms)
        ext_fields[_PROPERTIES] = outgoing.properties
        if outgoing.sys_flag:
            ext_fields[_SYS_FLAG] = str(outgoing.sys_flag)
        if outgoing.flag:
            ext_fields[_FLAG] = str(outgoing.flag)
        if outgoing.code == RequestCode.SEND_BATCH_MESSAGE:
            ext_fields[_BATCH] = "true"
        if outgoing.max_reconsume_times is not None:
            ext_fields[_RECONSUME_TIMES] = str(outgoing.reconsume_times)
            ext_fields[_MAX_RECONSUME_TIMES] = str(outgoing.max_reconsume_times)
        return RemotingCommand(outgoing.code, ext_fields, outgoing.body, flag=CommandFlag.ONEWAY if oneway else 0)

    def _encode_common_fields(self, target: MessageQueue) -> dict[str, str]:
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=target.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=self._config.default_topic_queues,
            queue_id=target.queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            broker_name=target.broker_name,
        )
        return encode_header(header)

    async def acquire_in_flight(self, size: int, deadline: float) -> None:
        """Wait until the limit of bytes in flight permits the message.

        Raises:
            RequestTimeout: the deadline came first.
        """
        try:
            await self._in_flight.acquire(size, deadline)
        except TimeoutError:
            raise RequestTimeout("the message waited for its whole timeout behind other messages in flight") from None

    async def find(self, topic: str, left: float) -> TopicQueues:
        """Return the queues of a topic, with a timeout of `left` seconds for the name servers.

        Raises:
            NoRoute: no broker serves the topic.
            TransportError: no name server responded in time.
        """
        try:
            deadline = self._loop.time() + left
            return await self._routes.find_for_sending(topic, self._config.default_topic_queues, deadline)
        except TimeoutError:
            raise RequestTimeout(
                f"no name server returned the route of topic {topic} within the send timeout"
            ) from None

    async def _wait_for_next(
        self,
        error: RaptorMQError,
        topic: str,
        route: TopicQueues | None,
        target: MessageQueue | None,
        pinned: MessageQueue | None,
        attempts: Attempts,
    ) -> bool:
        """Wait before the next attempt. Return False if there is none.

        Args:
            error: the error of the attempt.
            topic: the topic.
            route: the route of the attempt, if it had one.
            target: the queue of the attempt, if one was selected.
            pinned: the queue that the message has to be sent to, if it is known.
            attempts: the attempts of the send.
        """
        is_other = False
        if target is not None and target.broker_name not in attempts.tried:
            attempts.tried.add(target.broker_name)
            is_other = pinned is None and route is not None and not route.writable_brokers <= attempts.tried
        if self.no_broker_reached(topic, error):
            return await self.wait_for_broker(topic, route, pinned, attempts) if not is_other else attempts.may_wait()
        pause = attempts.next_pause(other_broker=is_other)
        if pause:  # there is no other broker to try
            await asyncio.sleep(pause)
            await self.refresh(topic, (attempts.deadline - self._loop.time()) / 2)
        return pause is not None

    async def wait_for_broker(
        self, topic: str, failed: TopicQueues | None, queue: MessageQueue | None, attempts: Attempts
    ) -> bool:
        """Wait after an attempt that reached no broker. Return False if there is no further attempt.

        Args:
            topic: the topic.
            failed: the route of the attempt; None for the cached route.
            queue: queue whose broker must be reached; None for any broker of the topic.
            attempts: the attempts of the send.
        """
        broker_name = None if queue is None else queue.broker_name
        while attempts.may_wait():
            until = attempts.deadline
            if attempts.may_be_cancelled:
                until = min(until, self._loop.time() + _LOOK_S)
            try:
                reached = await self._instance.reconnector.wait(topic, failed, broker_name, until)
            except TimeoutError:
                continue
            attempts.tried.clear()
            if reached is not None:
                self._health.succeeded(reached)
            return True
        return False

    async def refresh(self, topic: str, left: float) -> None:
        """Refresh the route within `left` seconds, because the broker may have moved. Failures are logged: the next
        attempt reports them.
        """
        try:
            await self._routes.refresh(topic, self._loop.time() + left)
        except (RaptorMQError, TimeoutError) as error:
            log.info("the cached route of topic %s is used for sending: %s", topic, error)

    def _pick(
        self, topic_queues: TopicQueues, key: str | None, now: float, tried: set[str], outgoing: SendRequest
    ) -> MessageQueue:
        if key is not None:
            return pick_by_key(topic_queues.write_queues, key)
        round_robin = self._round_robins.get(topic_queues.topic)
        if round_robin is None:
            round_robin = self._round_robins[topic_queues.topic] = RoundRobin(hash(self._instance.client_id) & 0xFFFF)
        # Prefer brokers that accept batches.
        unfit = self.batch_support.brokers_without_batches() if outgoing.inner_ids else frozenset()
        if not tried and not self._health.any_avoided and not unfit:
            queues = topic_queues.write_queues
            return round_robin.pick_for_batch(queues, now) if outgoing.merged else round_robin.pick(queues)
        avoided = self._health.avoided(now) | tried
        if avoided | unfit >= topic_queues.writable_brokers:  # all suitable brokers have failed
            if outgoing.merged:
                unfit = frozenset()  # a broker without batch support gets individual messages
            else:
                avoided = (
                    frozenset()
                )  # lists of the application are not split; the failed brokers may be available again
        return round_robin.pick(topic_queues.write_queues, avoided | unfit)

    def no_broker_reached(self, topic: str, error: RaptorMQError) -> bool:
        """Return whether an attempt reached no broker of a topic with a known route, as during a restart or failover.

        Without a known route the configured name servers may be wrong, so the error is reported soon.
        """
        return isinstance(error, ConnectError | NoRoute) and self._routes.cached(topic) is not None

    async def _is_queue_gone(self, target: MessageQueue | None, error: RaptorMQError, deadline: float) -> bool:
        """Return whether a broker rejected a queue that no longer exists according to the refreshed route."""
        if target is None or not isinstance(error, ServerError) or error.code != ResponseCode.INVALID_PARAMETER:
            return False
        await self.refresh(target.topic, (deadline - self._loop.time()) / 2)
        found = self._routes.cached(target.topic)
        return found is not None and target not in found.write_queues

    def note_failure(self, topic: str, target: MessageQueue | None, error: RaptorMQError, now: float) -> None:
        """Avoid a failed broker, and refresh the route of the topic."""
        if target is not None and isinstance(error, TransportError):
            self._health.failed(target.broker_name, now)
        if target is not None and isinstance(error, ServerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.note_missing(topic, target.broker_name)
        else:
            self._routes.refresh_soon(topic)  # the broker may have moved


def master_of(topic_queues: TopicQueues, target: MessageQueue) -> str:
    """Return the address of the master that serves a queue.

    Raises:
        NoRoute: the broker has no master now.
    """
    address = topic_queues.master(target.broker_name)
    if address is None:
        raise NoRoute(f"broker {target.broker_name} of {target} has no master now")
    return address


_NOT_STORED = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    }
)
"""Response codes with which brokers refuse a message before they store it."""


def failed_attempt(
    error: RaptorMQError, target: MessageQueue | None, address: str | None, seconds: float, *, is_sent: bool
) -> SendAttempt:
    """Return the description of a failed attempt. `is_sent`: the request was passed to the connection to the broker."""
    is_refused = isinstance(error, ConnectError | NoRoute) or (
        isinstance(error, ServerError) and error.code in _NOT_STORED
    )
    broker = target.broker_name if target is not None else None
    return SendAttempt(broker, address, seconds, _reason(error), is_sent and not is_refused)


_REASONS = {
    ConnectError: "no connection",
    RequestTimeout: "no response in time",
    ConnectionClosed: "the connection was lost",
    NoRoute: "no route",
}


def _reason(error: RaptorMQError) -> str:
    if isinstance(error, ServerError):
        return f"code {error.code}"
    return _REASONS.get(type(error), type(error).__name__)


def is_retriable(error: RaptorMQError) -> bool:
    """Return whether another attempt may succeed after this error."""
    return error.code in SEND_RETRY_CODES if isinstance(error, ServerError) else error.retriable
