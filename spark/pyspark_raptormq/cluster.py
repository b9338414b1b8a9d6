"""The brokers as blocking calls, over connections that live as long as the Python worker does.

Spark keeps its Python workers and hands them task after task, micro-batch after micro-batch: one event loop thread and
one set of connections per process and installation serve them all, found by `cluster_of`. Calls that fail because a
broker restarts are repeated until option `retryTimeoutMs` is over.

Neighbours: `raptormq.client` talks, `cluster_offsets`, `stream_reader` and `scan` ask.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import MissingTopic, NameServerUnreachable
from pyspark_raptormq.offsets import TopicIds, place_of
from raptormq.client import (
    AdminClient,
    EncryptionKeys,
    Perm,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullResult,
    Sql,
    TopicRoute,
)
from raptormq.errors import NoRoute, RaptorMQError, RequestTimeout, ServerError, TransportError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageQueue

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
"""By process, for a worker is forked, and by connection."""
_clusters_lock = threading.Lock()


def cluster_of(connection: Connection) -> Cluster:
    """Return this process's connections to the installation, made at the first call.

    Raises:
        OptionError: a file that an option names cannot be used.
    """
    key = os.getpid(), connection
    with _clusters_lock:
        if key not in _clusters:
            _clusters[key] = Cluster(connection)
        return _clusters[key]


class Cluster:
    """One installation. All methods may be called from any thread but not from coroutines.

    Every method raises `TransportError`, `NoRoute` or `ServerError` when the brokers did not give a useful answer
    within the retry time.
    """

    def __init__(self, connection: Connection) -> None:
        self._retry_timeout_s = connection.retry_timeout_s
        self._config = connection.client_config()
        self._consumer = PullConsumer(client_config=self._config)
        self._admin = AdminClient(client_config=self._config)
        self._producers: dict[tuple[str, ProducerConfig], Producer] = {}
        self._producers_lock = threading.Lock()
        self._seen: set[str] = set()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="raptormq", daemon=True)
        self._thread.start()
        self.run(self._consumer.start())
        self.run(self._admin.start())

    @property
    def keys(self) -> EncryptionKeys | None:
        """What encrypted messages are decrypted with."""
        return self._config.keys

    def close(self) -> None:
        """Close the connections and end the thread."""
        for producer in self._producers.values():
            self.run(producer.close())
        self.run(self._consumer.close())
        self.run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        Raises:
            NameServerUnreachable: no name server answers.
        """
        return self._first_contact("", self._admin.topics)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted.

        Always asks: a job that starts right after a topic has grown must see all of it.

        Raises:
            MissingTopic: no name server knows the topic, or none of its brokers is up.
            NameServerUnreachable: no name server answers.
        """

        async def find() -> list[MessageQueue]:
            route = await self._admin.route(topic)
            queues = _readable_queues(topic, route) if route is not None else []
            if not queues:
                raise NoRoute(topic)
            return queues

        try:
            return self._first_contact(topic, find)
        except NoRoute as error:
            raise MissingTopic(f"topic {topic} does not exist, or no broker that has it is up") from error

    def producer(self, group: str, config: ProducerConfig) -> Producer:
        """Return this process's producer of the group, made at the first call and used on the event loop alone
        (`run`).
        """
        key = group, config
        with self._producers_lock:
            if key not in self._producers:
                producer = Producer(group, config=config, client_config=self._config)
                self.run(producer.start())
                self._producers[key] = producer
            return self._producers[key]

    def find_topic(self, topic: str, group: str, config: ProducerConfig) -> None:
        """Look whether messages can be sent to a topic; one that brokers would create is fine.

        Raises:
            MissingTopic: no name server knows it and brokers create none, or none of its brokers is up.
            NameServerUnreachable: no name server answers.
        """
        producer = self.producer(group, config)
        try:
            self._first_contact(f"to {topic}", lambda: producer.queues(topic))
        except NoRoute as error:
            raise MissingTopic(f"topic {topic} does not exist, or no broker that has it is up") from error

    def _first_contact(self, name: str, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """What was there before may be restarting; what never was is probably misspelt, and not waited for as long."""
        patience = self._retry_timeout_s
        if name not in self._seen:
            patience = min(patience, _FIRST_CONTACT_PATIENCE_S)

        async def bounded() -> _T:
            try:
                # An attempt may take longer: nobody says that there is nobody at some addresses.
                async with asyncio.timeout(patience + _LAST_ATTEMPT_S):
                    return await self._patiently(attempt, patience)
            except TimeoutError:
                raise RequestTimeout(f"no answer within {patience + _LAST_ATTEMPT_S:g} s") from None

        try:
            found = self.run(bounded())
        except TransportError as error:
            where = ";".join(self._config.addresses)
            raise NameServerUnreachable(f"no name server answers at {where} (option nameServer): {error}") from error
        self._seen.add(name)
        return found

    def topic_ids(self, queues: Iterable[MessageQueue]) -> TopicIds:
        """Return the ids that brokers have given to the topics of these queues; one that is made again gets another."""
        places = {place_of(queue): queue for queue in queues}
        ids = self._for_each(places.values(), self._consumer.topic_id)
        return {place_of(queue): topic_id for queue, topic_id in ids.items() if topic_id is not None}

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of the first message that is still there, per queue."""
        return self._for_each(queues, self._consumer.min_offset)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset that the next message will get, per queue."""
        return self._for_each(queues, self._consumer.max_offset)

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the offset of the first message stored at or after that time, per queue."""
        return self._for_each(queues, lambda queue: self._consumer.offset_by_time(queue, timestamp_ms))

    def bytes_per_offset(self, offsets: Mapping[MessageQueue, int], expression: str | Sql) -> dict[MessageQueue, float]:
        """Return how many stored bytes an offset stands for, per queue: of the first messages from an offset on."""

        async def sample(queue: MessageQueue) -> float:
            first = offsets[queue]
            found = await self._consumer.pull(
                queue, first, _SAMPLE_COUNT, max_bytes=_SAMPLE_BYTES, expression=expression
            )
            return len(found.body) / max(1, found.next_offset - first)

        return self._for_each(offsets, sample)

    def start_pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        expression: str | Sql,
        topic_id: str | None = None,
    ) -> Future[PullResult]:
        """Ask for messages, of the topic with this id where it is known; the caller decodes what came before while the
        answer is on its way.
        """

        async def pull() -> PullResult:
            return await self._consumer.pull(
                queue, offset, max_count, max_bytes=max_bytes, expression=expression, topic_id=topic_id
            )

        return asyncio.run_coroutine_threadsafe(self._patiently(pull, self._retry_timeout_s), self._loop)

    def report(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set the offsets of a consumer group; tried once, and for a second at most: it holds a query up.

        Raises:
            TransportError, ServerError, NoRoute: a broker did not take them.
        """

        async def commit() -> None:
            async with PullConsumer(group=group, client_config=self._config) as consumer:
                consumer.assign(offsets)
                for queue, offset in offsets.items():
                    consumer.seek(queue, offset)
                await consumer.commit()

        async def bounded() -> None:
            try:
                async with asyncio.timeout(_REPORT_S):
                    await commit()
            except TimeoutError:
                raise RequestTimeout(f"no answer within {_REPORT_S:g} s") from None

        self.run(bounded())

    def _for_each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[_T]]
    ) -> dict[MessageQueue, _T]:
        async def ask_one(queue: MessageQueue) -> _T:
            return await self._patiently(lambda: ask(queue), self._retry_timeout_s)

        async def ask_all() -> dict[MessageQueue, _T]:
            wanted = list(queues)
            return dict(zip(wanted, await asyncio.gather(*map(ask_one, wanted)), strict=True))

        return self.run(ask_all())

    async def _patiently(self, attempt: Callable[[], Awaitable[_T]], patience_s: float) -> _T:
        """Repeat an attempt that failed for a reason that may pass."""
        deadline = self._loop.time() + patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except RaptorMQError as error:
                if not _may_pass(error) or self._loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the event loop of the connections and return its result; not called from that loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _readable_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    up = {broker.broker_name for broker in route.brokers}
    return sorted(
        MessageQueue(topic, queues.broker_name, number)
        for queues in route.queues
        if queues.broker_name in up and queues.perm & Perm.READ
        for number in range(queues.read_queue_nums)
    )


def _may_pass(error: RaptorMQError) -> bool:
    return error.retriable or (isinstance(error, ServerError) and error.code in _TRANSIENT_CODES)
