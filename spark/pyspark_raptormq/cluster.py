"""Blocking access to the brokers, with connections that are kept for the lifetime of the Python worker.

Spark reuses its Python workers for many tasks and micro-batches. `cluster_of` therefore caches one event loop thread
and one set of connections per process and `Connection`. Calls that fail with a temporary error, such as during the
restart of a broker, are retried for the time of option `retryTimeoutMs`. Tasks that read use the pull consumer alone;
the other clients are imported at their first use, because many Python processes of Spark import this module.

Used by `cluster_offsets`, `stream_reader`, `scan` and the sink; built on `raptormq.client`.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import uvloop

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import MissingTopic, NameServerUnreachable, OptionError
from pyspark_raptormq.marks import Stored
from pyspark_raptormq.offsets import QueueOffsets, TopicIds, place_of
from raptormq.client import EncryptionKeys, Perm, PullConsumer, PullResult, Sql, TopicRoute
from raptormq.client.config import local_address
from raptormq.errors import NoRoute, RaptorMQError, RecordError, RequestTimeout, ServerError, TransportError
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.bodies.staging import Ranges
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory, encode_host
from raptormq.protocol.record import decode_record

if TYPE_CHECKING:
    from raptormq.client import AdminClient, Producer, ProducerConfig, StagedCommit, StagingClient

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_FIRST_CONTACT_PATIENCE_S = 2.5
_LAST_ATTEMPT_S = 0.5
_REPORT_S = 1.0
_SAMPLE_COUNT = 64
_SAMPLE_BYTES = 64 * 1024
_TRANSIENT_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)


_clusters: dict[tuple[int, Connection], Cluster] = {}
"""Cache by process id and connection. The process id is needed because workers are forked."""
_clusters_lock = threading.Lock()


def cluster_of(connection: Connection) -> Cluster:
    """Return the cached `Cluster` of this process; create it at the first call.

    Raises:
        OptionError: A file named in an option cannot be used.
    """
    key = os.getpid(), connection
    with _clusters_lock:
        if key not in _clusters:
            _clusters[key] = Cluster(connection)
        return _clusters[key]


class GroupUse(NamedTuple):
    """How a consumer group is used."""

    members: list[str]
    """Client ids of the connected members."""
    offsets: QueueOffsets
    """Committed offsets above 0. Brokers before RocketMQ 5 return 0 for a group without offsets."""


class Cluster:
    """Connections to one cluster. Methods may be called from any thread, but not from coroutines.

    Every method raises `TransportError`, `NoRoute` or `ServerError` if no attempt succeeded within the retry time.
    """

    def __init__(self, connection: Connection) -> None:
        self._retry_timeout_s = connection.retry_timeout_s
        self._config = connection.client_config()
        self._consumer = PullConsumer(client_config=self._config)
        self._admin_client: AdminClient | None = None
        self._producers: dict[tuple[str, ProducerConfig], Producer] = {}
        self._clients_lock = threading.Lock()
        self._staging: dict[tuple[str, ProducerConfig], StagingClient] = {}
        self._seen: set[str] = set()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="raptormq", daemon=True)
        self._thread.start()
        self.run(self._consumer.start())

    @property
    def _admin(self) -> AdminClient:
        """The client for topics and routes, which only planners need."""
        with self._clients_lock:
            if self._admin_client is None:
                from raptormq.client import AdminClient

                admin = AdminClient(client_config=self._config)
                self.run(admin.start())
                self._admin_client = admin
            return self._admin_client

    @property
    def keys(self) -> EncryptionKeys | None:
        """Keys for decrypting messages."""
        return self._config.keys

    def close(self) -> None:
        """Close the connections and stop the event loop thread."""
        for producer in self._producers.values():
            self.run(producer.close())
        for staging in self._staging.values():
            self.run(staging.close())
        self.run(self._consumer.close())
        if self._admin_client is not None:
            self.run(self._admin_client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        Raises:
            NameServerUnreachable: No name server responded.
        """
        return self._first_contact("", self._admin.topics)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted.

        The route is not cached, so that new queues are visible immediately.

        Raises:
            MissingTopic: The topic has no route, or none of its brokers is registered.
            NameServerUnreachable: No name server responded.
        """
        admin = self._admin  # not on the event loop, which starts it

        async def find() -> list[MessageQueue]:
            route = await admin.route(topic)
            queues = _readable_queues(topic, route) if route is not None else []
            if not queues:
                raise NoRoute(topic)
            return queues

        try:
            return self._first_contact(topic, find)
        except NoRoute as error:
            raise MissingTopic(f"topic {topic} does not exist, or none of its brokers is available") from error

    def brokers(self) -> set[str]:
        """Return the names of the broker groups that are registered with a master or leader.

        Raises:
            NameServerUnreachable: No name server responded.
        """
        found = self._first_contact("", self._admin.cluster_info).brokers
        return {name for name, group in found.items() if MASTER_ID in group.broker_addrs}

    def lost_queues(self) -> list[MessageQueue]:
        """Return the readable queues of broker groups that are not registered any more, as far as the name servers know
        them, sorted.

        Raises:
            NameServerUnreachable: No name server responded.
        """
        lost = self._first_contact("", self._admin.lost_brokers)
        return sorted(
            MessageQueue(topic, broker, number)
            for broker, topics in lost.items()
            for topic, count in topics.items()
            for number in range(count)
        )

    def producer(self, group: str, config: ProducerConfig) -> Producer:
        """Return the producer of a group; create it at the first call. It must be used on the event loop (see `run`).

        Raises:
            OptionError: Messages are to be encrypted, and there are no keys.
        """
        key = group, config
        if config.encrypt and self._config.keys is None:
            raise OptionError("option encrypt needs keys: set encryptionKeyFile or encryptionKeyFolder")
        with self._clients_lock:
            if key not in self._producers:
                from raptormq.client import Producer

                producer = Producer(group, config=config, client_config=self._config)
                self.run(producer.start())
                self._producers[key] = producer
            return self._producers[key]

    def staging(self, group: str, config: ProducerConfig) -> StagingClient:
        """Return the staging client of this process; see `producer`."""
        key = group, config
        with self._clients_lock:
            if key not in self._staging:
                from raptormq.client import StagingClient

                staging = StagingClient(group, config=config, client_config=self._config)
                self.run(staging.start())
                self._staging[key] = staging
            return self._staging[key]

    def new_ids(self) -> UniqueIdFactory:
        """Return a factory of unique ids for messages that one task encodes itself. A random number distinguishes its
        ids from those of all other factories.
        """
        ip = self._config.client_ip or local_address(self._config.addresses[0])
        return UniqueIdFactory(encode_host(ip, 0)[:-4], os.getpid(), random.getrandbits(32))

    def coordinator(self, given: str | None, group: str, config: ProducerConfig) -> str:
        """Return the broker group that commits batches first: `given`, or else the only group of the cluster. A group
        that is down counts, because a query must have the same coordinator for its whole life.

        Raises:
            OptionError: there are several groups and `given` is None, or the group `given` is not available, or it does
                not support staging.
            NameServerUnreachable: no name server responds.
        """
        staging = self.staging(group, config)

        async def find() -> str:
            brokers = await staging.brokers()
            if given is None and len(brokers) > 1:
                raise OptionError(
                    f"exactlyOnce with several broker groups ({', '.join(brokers)}) needs option coordinator: choose"
                    " one group and keep it for all runs of a query"
                )
            if given is not None and given not in brokers:
                raise NoRoute(f"there is no broker group {given}; known are {', '.join(brokers) or 'none'}")
            if not brokers:
                raise NoRoute("no broker is up")
            return given or brokers[0]

        try:
            chosen = self._first_contact(f"coordinator {given or ''}", find)
            # A commit calls this, too. The group is known, so that its master comes back or another one is elected.
            offers = self.run(self.with_retries(lambda: staging.offers_staging(chosen)))
        except NoRoute as error:
            if given is None:
                raise
            raise OptionError(f"option coordinator: {error}") from error
        if not offers:
            raise OptionError(
                f"broker {chosen} does not support exactly-once writes: set stagedMessagesEnable = true, or remove"
                " exactlyOnce"
            )
        return chosen

    def commit_staged(
        self, staging: StagingClient, topic: str, broker: str, query: str, batch: int, decision: Mapping[str, Ranges]
    ) -> StagedCommit:
        """Commit a batch at a broker group, with retries until it responds. `topic` is that of option `topic`, or
        empty."""
        return self.run(self.with_retries(lambda: staging.commit(broker, query, batch, decision, topic)))

    async def with_retries(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Call a function and retry it for the retry time. Must be called on the event loop."""
        return await self._with_retries(attempt, self._retry_timeout_s)

    def find_topic(self, topic: str, group: str, config: ProducerConfig) -> None:
        """Check that messages can be sent to a topic, or that brokers create the topic automatically.

        Raises:
            MissingTopic: The topic has no route and is not created automatically, or none of its brokers is registered.
            NameServerUnreachable: No name server responded.
        """
        producer = self.producer(group, config)
        try:
            self._first_contact(f"to {topic}", lambda: producer.queues(topic))
        except NoRoute as error:
            raise MissingTopic(f"topic {topic} does not exist, or none of its brokers is available") from error

    def _first_contact(self, name: str, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Run `attempt` with retries. A name that was never found is retried for a shorter time, as it is probably
        misspelt; a name that was found before is retried for the full retry time."""
        patience = self._retry_timeout_s
        if name not in self._seen:
            patience = min(patience, _FIRST_CONTACT_PATIENCE_S)

        async def bounded() -> _T:
            try:
                # An attempt may exceed the retry time when an address does not refuse connections.
                async with asyncio.timeout(patience + _LAST_ATTEMPT_S):
                    return await self._with_retries(attempt, patience)
            except TimeoutError:
                raise RequestTimeout(f"no response within {patience + _LAST_ATTEMPT_S:g} s") from None

        try:
            found = self.run(bounded())
        except TransportError as error:
            where = ";".join(self._config.addresses)
            raise NameServerUnreachable(f"no name server responds at {where} (option nameServer): {error}") from error
        self._seen.add(name)
        return found

    def topic_ids(self, queues: Iterable[MessageQueue]) -> TopicIds:
        """Return the topic ids by topic and broker name. A topic that is deleted and created again gets a new id."""
        places = {place_of(queue): queue for queue in queues}
        ids = self._for_each(places.values(), self._consumer.topic_id)
        return {place_of(queue): topic_id for queue, topic_id in ids.items() if topic_id is not None}

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the minimum offset per queue, that of the first stored message."""
        return self._for_each(queues, self._consumer.min_offset)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the end offset per queue, that of the next message to be stored."""
        return self._for_each(queues, self._consumer.max_offset)

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the offset of the first message stored at or after that time, per queue."""
        return self._for_each(queues, lambda queue: self._consumer.offset_by_time(queue, timestamp_ms))

    def bytes_per_offset(self, offsets: Mapping[MessageQueue, int], expression: str | Sql) -> dict[MessageQueue, float]:
        """Return the average stored bytes per offset, per queue, estimated from the first messages at `offsets`."""

        async def sample(queue: MessageQueue) -> float:
            first = offsets[queue]
            found = await self._consumer.pull(
                queue, first, _SAMPLE_COUNT, max_bytes=_SAMPLE_BYTES, expression=expression
            )
            return len(found.body) / max(1, found.next_offset - first)

        return self._for_each(offsets, sample)

    def stored_at(self, places: Sequence[tuple[MessageQueue, int]]) -> dict[tuple[MessageQueue, int], Stored]:
        """Return where and when the messages at these offsets were stored. Messages that do not exist any more, and
        those of brokers that do not return them, are left out.
        """

        async def find(queue: MessageQueue, offset: int) -> Stored | None:
            try:
                found = await self._consumer.pull(queue, offset, 1, max_bytes=1)
                record = decode_record(found.body, check_crc=False) if found.body else None
            except (RecordError, NoRoute):
                return None
            except ServerError as error:
                if _is_temporary(error):
                    raise
                return None
            return None if record is None else Stored(record.physical_offset, record.store_timestamp)

        async def find_all() -> list[Stored | None]:
            attempts = (
                self._with_retries(lambda place=place: find(*place), self._retry_timeout_s)  # type: ignore[misc]
                for place in places
            )
            return await asyncio.gather(*attempts)

        found = zip(places, self.run(find_all()), strict=True)
        return {place: stored for place, stored in found if stored is not None}

    def start_pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        expression: str | Sql,
        topic_id: str | None = None,
    ) -> Future[PullResult]:
        """Start a pull and return its future, so that the caller can decode the previous response meanwhile.

        With `topic_id` the broker rejects the pull if its topic has another id.
        """

        async def pull() -> PullResult:
            return await self._consumer.pull(
                queue, offset, max_count, max_bytes=max_bytes, expression=expression, topic_id=topic_id
            )

        return asyncio.run_coroutine_threadsafe(self._with_retries(pull, self._retry_timeout_s), self._loop)

    def report(self, group: str, offsets: Mapping[MessageQueue, int]) -> list[str]:
        """Commit offsets for a consumer group without members, in one attempt with a timeout of 1 s, because the call
        blocks the query. Return the client ids of the members; nothing is committed if there are some.

        Raises:
            TransportError, ServerError, NoRoute: A request failed.
        """

        async def commit() -> list[str]:
            async with PullConsumer(group=group, client_config=self._config) as consumer:
                members = await _members(consumer, offsets)
                if not members:
                    consumer.assign(offsets)
                    for queue, offset in offsets.items():
                        consumer.seek(queue, offset)
                    await consumer.commit()
                return members

        async def bounded() -> list[str]:
            try:
                async with asyncio.timeout(_REPORT_S):
                    return await commit()
            except TimeoutError:
                raise RequestTimeout(f"no response within {_REPORT_S:g} s") from None

        return self.run(bounded())

    def group_use(self, group: str, queues: Collection[MessageQueue]) -> GroupUse:
        """Return the members and the offsets of a consumer group."""

        async def ask() -> GroupUse:
            async with PullConsumer(group=group, client_config=self._config) as consumer:
                found = await asyncio.gather(*map(consumer.committed, queues))
                offsets = {queue: offset for queue, offset in zip(queues, found, strict=True) if offset}
                return GroupUse(await _members(consumer, queues), offsets)

        return self.run(self._with_retries(ask, self._retry_timeout_s))

    def _for_each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[_T]]
    ) -> dict[MessageQueue, _T]:
        async def ask_one(queue: MessageQueue) -> _T:
            return await self._with_retries(lambda: ask(queue), self._retry_timeout_s)

        async def ask_all() -> dict[MessageQueue, _T]:
            wanted = list(queues)
            return dict(zip(wanted, await asyncio.gather(*map(ask_one, wanted)), strict=True))

        return self.run(ask_all())

    async def _with_retries(self, attempt: Callable[[], Awaitable[_T]], patience_s: float) -> _T:
        """Run `attempt` and retry temporary errors for up to `patience_s` seconds, with exponential backoff."""
        deadline = self._loop.time() + patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except RaptorMQError as error:
                if not _is_temporary(error) or self._loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the event loop and return its result. Must not be called from the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _members(consumer: PullConsumer, queues: Iterable[MessageQueue]) -> list[str]:
    """Return the members of the consumer's group at the brokers of the queues, sorted."""
    one_of_each = {place_of(queue): queue for queue in queues}
    return sorted(set().union(*await asyncio.gather(*map(consumer.members, one_of_each.values()))))


def _readable_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    up = {broker.broker_name for broker in route.brokers}
    return sorted(
        MessageQueue(topic, queues.broker_name, number)
        for queues in route.queues
        if queues.broker_name in up and queues.perm & Perm.READ
        for number in range(queues.read_queue_nums)
    )


def _is_temporary(error: RaptorMQError) -> bool:
    return error.retriable or (isinstance(error, ServerError) and error.code in _TRANSIENT_CODES)
