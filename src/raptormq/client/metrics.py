"""`ClientMetrics`: Prometheus metrics of producers and consumers, counted by an interceptor.

    metrics = ClientMetrics()                       # one for all clients of the process
    Producer("billing", interceptors=[metrics])
    ConsumerConfig(interceptors=[metrics])
    prometheus_client.start_http_server(9400)

Metrics::

    raptormq_client_sends_total{group, topic, result}
    raptormq_client_send_seconds_bucket{group, topic, le}
    raptormq_client_in_flight_messages{group, topic}
    raptormq_client_in_flight_bytes{group, topic}
    raptormq_client_backpressure_waits_total{group, topic}
    raptormq_client_consumed_total{group, topic, result}
    raptormq_client_consume_seconds_bucket{group, topic, le}
    raptormq_client_dead_letters_total{group, topic}
    raptormq_client_rebalances_total{group, change}
    raptormq_client_queue_lag_messages{group, topic, broker, queue}

The lag is read at a scrape, by `describe()` in the event loop of each client. A scrape omits the series of a loop that
is blocked longer than `DESCRIBE_TIMEOUT_S`, so that a scrape always ends.

See also: `interceptors` calls. Source: none; the names follow those of the broker (`broker.metrics`).
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from raptormq.client.description import ConsumerDescription, ProducerDescription
from raptormq.client.interceptors import (
    BackpressureContext,
    ConsumeContext,
    ConsumerInterceptor,
    ConsumeStatus,
    DeadLetterContext,
    Described,
    ProducerInterceptor,
    RebalanceContext,
    SendContext,
)
from raptormq.errors import ConfigError
from raptormq.logs import get_logger

log = get_logger(__name__)

DESCRIBE_TIMEOUT_S = 1.0
"""How long a scrape waits for an event loop, in seconds."""
_PREFIX = "raptormq_client_"
_LABELS = ("group", "topic")
_SEND_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_CONSUME_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0)

Description = ProducerDescription | ConsumerDescription


def send_result(context: SendContext) -> str:
    """Return the label `result` of a finished send: the status of the broker, such as `SEND_OK`; the class of an
    error, such as `RequestTimeout`; `cancelled`; or `oneway`, whose outcome is not known.
    """
    if isinstance(context.error, asyncio.CancelledError):
        return "cancelled"
    if context.error is not None:
        return type(context.error).__name__
    return "oneway" if context.result is None else context.result.status.name


def consume_results(context: ConsumeContext) -> dict[str, int]:
    """Return the numbers of messages by the label `result`: `consumed`, `retried`, `dead_letter` or `abandoned`.

    A batch listener may have consumed some of its messages.
    """
    count, status = len(context.messages), context.status
    if status is None:
        return {}
    if status is not ConsumeStatus.RETRIED:
        return {status.name.lower(): count}
    failed = len(context.failed)
    results = {ConsumeStatus.CONSUMED.name.lower(): count - failed, status.name.lower(): failed}
    return {name: number for name, number in results.items() if number}


class _Sends(NamedTuple):
    """The series of one group and topic that every send touches."""

    seconds: Histogram
    messages: Gauge
    bytes: Gauge


class ClientMetrics(ProducerInterceptor, ConsumerInterceptor):
    """Counts the sends of producers and the consumption of consumers. One object serves any number of clients, in any
    event loops and threads.

    Args:
        registry: where the metrics are registered; default: that of `prometheus_client`.

    Raises:
        ConfigError: the registry has the metrics of another `ClientMetrics`.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = REGISTRY if registry is None else registry
        with_result = (*_LABELS, "result")
        try:
            self._sends = Counter(f"{_PREFIX}sends", "Messages sent, by result", with_result, registry=registry)
            self._send_seconds = Histogram(
                f"{_PREFIX}send_seconds",
                "Time from a send until its outcome, with all attempts, in seconds",
                _LABELS,
                buckets=_SEND_BUCKETS,
                registry=registry,
            )
            text = "Messages without an outcome"
            self._messages = Gauge(f"{_PREFIX}in_flight_messages", text, _LABELS, registry=registry)
            text = "Bytes of the bodies of messages without an outcome"
            self._bytes = Gauge(f"{_PREFIX}in_flight_bytes", text, _LABELS, registry=registry)
            text = "Sends that waited for the limits of messages in flight"
            self._waits = Counter(f"{_PREFIX}backpressure_waits", text, _LABELS, registry=registry)
            text = "Messages given to listeners and loops, by result"
            self._consumed = Counter(f"{_PREFIX}consumed", text, with_result, registry=registry)
            self._consume_seconds = Histogram(
                f"{_PREFIX}consume_seconds",
                "Time of a listener call, or until a message of a loop is settled, in seconds",
                _LABELS,
                buckets=_CONSUME_BUCKETS,
                registry=registry,
            )
            text = "Messages that were moved to the dead letter queue"
            self._dead_letters = Counter(f"{_PREFIX}dead_letters", text, _LABELS, registry=registry)
            text = "Changes of the queues of a consumer"
            self._rebalances = Counter(f"{_PREFIX}rebalances", text, ("group", "change"), registry=registry)
            self._clients = _Clients()
            registry.register(_QueueLags(self._clients))
        except ValueError as error:
            raise ConfigError(
                f"a registry accepts only one ClientMetrics: pass the same object to all clients ({error})"
            ) from None
        self._series: dict[tuple[str, str], _Sends] = {}

    def before_send(self, context: SendContext) -> None:
        """Count a message as in flight."""
        series = self._series_of(context)
        body: object = context.message.body  # not validated yet
        size = len(body) if isinstance(body, bytes | bytearray | memoryview) else 0
        context.state[self] = size  # another interceptor may replace the body
        series.messages.inc()
        series.bytes.inc(size)

    def after_send(self, context: SendContext) -> None:
        """Count the outcome."""
        series = self._series_of(context)
        series.messages.dec()
        series.bytes.dec(context.state.pop(self))
        series.seconds.observe(context.duration)
        self._sends.labels(context.group, context.message.topic, send_result(context)).inc()

    def _series_of(self, context: SendContext) -> _Sends:
        key = context.group, context.message.topic
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Sends(
                self._send_seconds.labels(*key), self._messages.labels(*key), self._bytes.labels(*key)
            )
        return series

    def on_backpressure(self, context: BackpressureContext) -> None:
        """Count a send that waits for the limits of messages in flight."""
        self._waits.labels(context.group, context.topic).inc()

    def after_consume(self, context: ConsumeContext) -> None:
        """Count the outcome."""
        self._consume_seconds.labels(context.group, context.topic).observe(context.duration)
        for result, count in consume_results(context).items():
            self._consumed.labels(context.group, context.topic, result).inc(count)

    def on_dead_letter(self, context: DeadLetterContext) -> None:
        """Count a dead letter."""
        self._dead_letters.labels(context.group, context.message.topic).inc()

    def on_rebalance(self, context: RebalanceContext) -> None:
        """Count a change of queues."""
        self._rebalances.labels(context.group, context.change.value).inc()

    def on_start(self, client: Described) -> None:
        """Read the lag of this client from now on."""
        self._clients.add(client)

    def on_close(self, client: Described) -> None:
        """Stop reading the lag of this client."""
        self._clients.remove(client)


class _Clients:
    """The started clients with their event loops. References are weak, so that clients can be garbage-collected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[Described, asyncio.AbstractEventLoop] = weakref.WeakKeyDictionary()

    def add(self, client: Described) -> None:
        """Add a client of the running event loop."""
        with self._lock:
            self._loops[client] = asyncio.get_running_loop()

    def remove(self, client: Described) -> None:
        """Remove a client; no effect if it is unknown."""
        with self._lock:
            self._loops.pop(client, None)

    def describe(self) -> Iterator[Description]:
        """Describe each client in its event loop. May be called in any thread."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Described]] = {}
        with self._lock:
            for client, loop in self._loops.items():
                by_loop.setdefault(loop, []).append(client)
        for loop, clients in by_loop.items():
            yield from _describe_in(loop, clients)


def _describe_in(loop: asyncio.AbstractEventLoop, clients: Iterable[Described]) -> list[Description]:
    """Return the descriptions of the clients of a loop; an empty list if the loop is closed or does not respond within
    `DESCRIBE_TIMEOUT_S`.
    """
    if _running_loop() is loop:
        return [client.describe() for client in clients]
    described: Future[list[Description]] = Future()

    def describe() -> None:
        try:
            described.set_result([client.describe() for client in clients])
        except Exception as error:  # noqa: BLE001 - belongs to the thread that waits
            described.set_exception(error)

    try:
        loop.call_soon_threadsafe(describe)
    except RuntimeError:  # the loop is closed
        return []
    try:
        return described.result(DESCRIBE_TIMEOUT_S)
    except TimeoutError:
        log.warning(
            "a scrape omits the metrics of %s: its event loop has not responded for %g s",
            *(", ".join(sorted({type(client).__name__ for client in clients})), DESCRIBE_TIMEOUT_S),
        )
        return []


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _QueueLags(Collector):
    """The lag of each assigned queue, read at a scrape."""

    def __init__(self, clients: _Clients) -> None:
        self._clients = clients

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics (prometheus_client)."""
        labels = ["group", "topic", "broker", "queue"]
        text = "Messages of an assigned queue that are not finished, including those that were not fetched"
        family = GaugeMetricFamily(f"{_PREFIX}queue_lag_messages", text, labels=labels)
        for values, lag in queue_lags(self._clients.describe()).items():
            family.add_metric(values, lag)
        yield family


def queue_lags(descriptions: Iterable[Description]) -> Mapping[tuple[str, str, str, str], int]:
    """Return the known lags of the queues of consumers by group, topic, broker and queue number.

    Members that broadcast may have the same queue: the largest lag counts.
    """
    lags: dict[tuple[str, str, str, str], int] = {}
    for each in descriptions:
        for read in each.queues if isinstance(each, ConsumerDescription) else ():
            if read.lag is not None:
                queue = read.queue
                key = each.group, queue.topic, queue.broker_name, str(queue.queue_id)
                lags[key] = max(lags.get(key, 0), read.lag)
    return lags
