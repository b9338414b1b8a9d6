"""What tools ask about the broker itself: 28 (runtime figures), 26 (settings) (``AdminBrokerProcessor``,
``BrokerStats``).

``mqadmin clusterList`` parses a good part of these values strictly, so every key it looks for is there, as a string.
``unknownSettings`` is ours alone, and there only when the settings have keys that neither this broker nor RocketMQ
knows.
"""

from __future__ import annotations

from raptormq.broker.config import BrokerConfig, warnings_for
from raptormq.broker.queue_ages import NO_TIMESTAMP
from raptormq.broker.rates import Rates
from raptormq.broker.topics import TopicTable
from raptormq.config_file import dump_settings
from raptormq.protocol.bodies.queues import encode_kv_table
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import PROTOCOL_VERSION, RemotingCommand, response_to
from raptormq.protocol.headers.topic import VersionResponseHeader
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router

VERSION_NAME = "V5_3_3"
"""What tools show; must be the name of :data:`raptormq.protocol.command.PROTOCOL_VERSION`."""
_ALWAYS_ZERO = [
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
]
"""Figures of things that this broker does not have: thread pools, a timer wheel."""


class RuntimeHandlers:
    """Describes the running broker."""

    def __init__(self, store: MessageStore, topics: TopicTable, config: BrokerConfig, rates: Rates) -> None:
        self._store = store
        self._topics = topics
        self._config = config
        self._rates = rates
        self._unknown_settings = "; ".join(warnings_for(config.given))  # no request adds any (:mod:`running_config`)

    def register(self, router: Router) -> None:
        """Enter the handlers into the table."""
        router.add(RequestCode.GET_BROKER_RUNTIME_INFO, None, self.runtime)
        router.add(RequestCode.GET_BROKER_CONFIG, None, self.settings)

    async def runtime(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """28: figures by name."""
        return response_to(command, body=encode_kv_table(await self._figures()))

    def settings(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """26: the settings in force, as properties text."""
        text = "".join(f"{key}={value}\n" for key, value in dump_settings(self._config).items())
        version = VersionResponseHeader(dumps(self._topics.version.to_dict()).decode())
        return response_to(command, header=version, body=text.encode())

    async def _figures(self) -> dict[str, str]:
        stats, rates = self._store.stats(), self._rates
        counters = rates.counters
        first = await self._store.stored_at_cold(stats.min_offset)
        lag = self._store.lag()
        figures = dict.fromkeys(_ALWAYS_ZERO, "0")
        figures |= {
            "bootTimestamp": str(rates.boot_ms),
            "brokerActive": "true",
            "brokerVersion": str(PROTOCOL_VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "commitLogDiskRatio": f"{stats.disk_used_ratio:.4f}",
            "commitLogMaxOffset": str(stats.end_offset),
            "commitLogMinOffset": str(stats.min_offset),
            "consumeQueueDiskRatio": f"{stats.disk_used_ratio:.4f}",
            "dispatchBehindBytes": str(lag.bytes),
            "dispatchBehindMilliseconds": str(lag.milliseconds),
            "earliestMessageTimeStamp": str(NO_TIMESTAMP if first is None else first),
            "getFoundTps": rates.text("pulls_found"),
            "getMissTps": rates.text("pulls_empty"),
            "getTotalTps": rates.text("pulls_found"),
            "getTransferredTps": rates.text("messages_out"),
            "msgGetTotalTodayMorning": str(rates.this_morning.messages_out),
            "msgGetTotalTodayNow": str(counters.messages_out),
            "msgGetTotalYesterdayMorning": str(rates.yesterday_morning.messages_out),
            "msgPutTotalTodayMorning": str(rates.this_morning.messages_in),
            "msgPutTotalTodayNow": str(counters.messages_in),
            "msgPutTotalYesterdayMorning": str(rates.yesterday_morning.messages_in),
            "putMessageAverageSize": f"{counters.bytes_in / max(1, counters.messages_in):.1f}",
            "putMessageFailedTimes": str(counters.sends_refused),
            "putMessageSizeTotal": str(counters.bytes_in),
            "putMessageTimesTotal": str(counters.messages_in),
            "putTps": rates.text("messages_in"),
            "remainHowManyDataToFlush": f"{stats.end_offset - stats.flushed_offset} B",
            "runtime": rates.uptime_text(),
        }
        if self._unknown_settings:
            figures["unknownSettings"] = self._unknown_settings
        return figures
