"""Administration queries about the broker: 28 (runtime info), 26 (settings) (``AdminBrokerProcessor``,
``BrokerStats``).

``mqadmin clusterList`` and the Prometheus exporter of Apache RocketMQ require many of these values. The response
therefore has all keys of Apache RocketMQ 5.3.3, with strings as values. The key ``unknownSettings`` is an extension. It
is present only if the settings contain keys that neither this broker nor RocketMQ supports. A member of a Dledger group
adds keys with the prefix ``dledger`` (:meth:`raptormq.broker.replication.Replication.facts`).
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.config import BrokerConfig, RunningConfig, warnings_for
from raptormq.broker.delay.progress import DelayProgress
from raptormq.broker.metrics import NO_TIMESTAMP, Rates
from raptormq.broker.tables import TopicTable
from raptormq.protocol.bodies.queues import encode_kv_table
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import PROTOCOL_VERSION, RemotingCommand, response_to
from raptormq.protocol.headers.topic import VersionResponseHeader
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router

VERSION_NAME = "V5_3_3"
"""Version that tools show: the name of :data:`raptormq.protocol.command.PROTOCOL_VERSION`."""
_POOLS = {
    "sendThreadPoolQueue": 10_000,
    "pullThreadPoolQueue": 100_000,
    "litePullThreadPoolQueue": 100_000,
    "queryThreadPoolQueue": 20_000,
    "ackThreadPoolQueue": 100_000,
}
"""Thread pool queues of RocketMQ with their default capacities. This broker has no such queues."""
_UNITS = "KMGTPE"
_ABSENT = (
    {f"{pool}Size": "0" for pool in _POOLS}
    | {f"{pool}HeadWaitTimeMills": "0" for pool in _POOLS}
    | {f"{pool}Capacity": str(capacity) for pool, capacity in _POOLS.items()}
    | {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
        "dispatchMaxBuffer": "0",
        "pageCacheLockTimeMills": "0",
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "startAcceptSendRequestTimeStamp": "0",
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }
)
"""Values that an idle RocketMQ broker reports for features that this broker does not have: thread pools, a dispatch
buffer, a pool of direct memory, a start delay for sends, a timer wheel. The exporter fails if one of them is missing.
"""


class RuntimeHandlers:
    """Handles queries about the state and settings of the broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        config: BrokerConfig,
        running_config: RunningConfig,
        delays: DelayProgress,
        rates: Rates,
        group_facts: Callable[[], dict[str, str]] | None = None,
    ) -> None:
        """Create the handlers. ``group_facts`` returns the runtime values of a member of a Dledger group."""
        self._group_facts = group_facts
        self._store = store
        self._topics = topics
        self._running_config = running_config
        self._delays = delays
        self._rates = rates
        # Constant, because RunningConfig refuses unknown keys.
        self._unknown_settings = "; ".join(warnings_for(config.given))

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.GET_BROKER_RUNTIME_INFO, None, self.runtime)
        router.add(RequestCode.GET_BROKER_CONFIG, None, self.settings)

    async def runtime(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """28: return runtime values by name."""
        return response_to(command, body=encode_kv_table(await self._figures()))

    def settings(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """26: return the current settings, and given settings without effect, in properties format."""
        text = "".join(f"{key}={value}\n" for key, value in self._running_config.shown().items())
        version = VersionResponseHeader(dumps(self._topics.version.to_dict()).decode())
        return response_to(command, header=version, body=text.encode())

    async def _figures(self) -> dict[str, str]:
        stats, rates = self._store.stats(), self._rates
        counters = rates.counters
        first = await self._store.store_timestamp_at(stats.min_offset)
        lag = self._store.lag()
        figures = _ABSENT | {
            "bootTimestamp": str(rates.boot_ms),
            "brokerActive": "true",
            "brokerVersion": str(PROTOCOL_VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "commitLogDiskRatio": f"{stats.disk_used_ratio:.4f}",
            f"commitLogDiskRatio_{self._store.config.paths.log}": f"{stats.disk_used_ratio:.4f}",
            "commitLogMaxOffset": str(stats.end_offset),
            "commitLogMinOffset": str(stats.min_offset),
            "consumeQueueDiskRatio": f"{stats.disk_used_ratio:.4f}",
            "dispatchBehindBytes": str(lag.bytes),
            "dispatchBehindMilliseconds": str(lag.milliseconds),
            "earliestMessageTimeStamp": str(NO_TIMESTAMP if first is None else first),
            "getFoundTps": rates.text("pulls_found"),
            "getMessageEntireTimeMax": str(counters.longest_read_ms),
            "getMissTps": rates.text("pulls_empty"),
            "getTotalTps": rates.text("pulls_found"),
            "getTransferredTps": rates.text("messages_out"),
            "msgGetTotalTodayMorning": str(rates.this_morning.messages_out),
            "msgGetTotalTodayNow": str(counters.messages_out),
            "msgGetTotalYesterdayMorning": str(rates.yesterday_morning.messages_out),
            "msgPutTotalTodayMorning": str(rates.this_morning.messages_in),
            "msgPutTotalTodayNow": str(counters.messages_in),
            "msgPutTotalYesterdayMorning": str(rates.yesterday_morning.messages_in),
            "putLatency99": f"{counters.put_times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{counters.put_times.percentile_ms(0.999):.2f}",
            "putMessageAverageSize": f"{counters.bytes_in / max(1, counters.messages_in):.1f}",
            "putMessageDistributeTime": counters.put_times.distribution(),
            "putMessageEntireTimeMax": f"{counters.put_times.longest_s * 1000:.0f}",
            "putMessageFailedTimes": str(counters.sends_refused),
            "putMessageSizeTotal": str(counters.bytes_in),
            "putMessageTimesTotal": str(counters.messages_in),
            "putTps": rates.text("messages_in"),
            "remainHowManyDataToFlush": f"{stats.end_offset - stats.flushed_offset} B",
            "runtime": rates.uptime_text(),
        }
        for queue_id in self._store.queue_ids(SCHEDULE_TOPIC):
            level, end = queue_id + 1, self._store.queue_end(SCHEDULE_TOPIC, queue_id)
            figures[f"scheduleMessageOffset_{level}"] = f"{self._delays.offsets.get(level, 0)},{end}"
        if stats.disk_usage is not None:
            total, free = map(_readable_bytes, stats.disk_usage)
            figures["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
        if self._group_facts is not None:
            figures |= self._group_facts()
        if self._unknown_settings:
            figures["unknownSettings"] = self._unknown_settings
        return figures


def _readable_bytes(size: int) -> str:
    """Return a size in the format that tools parse (``MixAll.humanReadableByteCount``): ``252.0 GiB``, or ``17 B``
    below 1 KiB.
    """
    unit = min((size.bit_length() - 1) // 10, len(_UNITS)) if size else 0
    return f"{size / 1024**unit:.1f} {_UNITS[unit - 1]}iB" if unit else f"{size} B"
