"""Requests of slaves to their master (``AdminBrokerProcessor``, ``SlaveSynchronize``)::

    43      consumer offsets
    45      delivery progress of delay levels
    60, 61  delivery progress of timers
    906     addresses of the master
    31015   records of the log, to repair damage
    31021   comparison of the logs

The requests for topics, groups and request modes (21, 201, 402) are in the handlers that change them.

The body of the response to 60 is ``lastReadTimeMs | lastTimerLogFlushPos | lastTimerQueueOffset |
masterTimerQueueOffset | stateVersion | timestamp | counter``, all i64 big-endian. A slave of Apache RocketMQ copies the
messages before ``masterTimerQueueOffset`` to its own timer log and does not deliver those due before
``lastReadTimeMs``.
"""

from __future__ import annotations

import struct
from functools import partial

import orjson
from isal.isal_zlib import crc32

from raptormq.broker.delay.progress import DelayProgress
from raptormq.broker.delay.timer_delivery import TimerDelivery
from raptormq.broker.in_thread import run_to_completion
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.frame import MAX_FRAME_BYTES
from raptormq.protocol.headers.ha import (
    CompareLogRequestHeader,
    ExchangeHaInfoResponseHeader,
    ReadLogRangeRequestHeader,
)
from raptormq.protocol.topic_names import TIMER_TOPIC
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

RANGE_BYTES = 1 << 20
"""Maximum size of one response to 31015, unless a single record is longer."""
_TIMERS = struct.Struct(">7q")


class SlaveTableHandlers:
    """Handles the requests of slaves."""

    def __init__(
        self,
        store: MessageStore,
        delays: DelayProgress,
        timers: TimerDelivery,
        addresses: tuple[str, str | None],
        *,
        serves_log: bool,
    ) -> None:
        """Create the handlers.

        Args:
            store: the store of the broker.
            delays: delivery progress of delay levels.
            timers: delivers timer messages.
            addresses: the address for clients and that of the HA port; the latter is None unless the broker is a
                master.
            serves_log: whether 31015 is handled. A member of a Dledger group does not handle it, because its log
                contains the passwords of users.
        """
        self._serves_log = serves_log
        self._store = store
        self._delays = delays
        self._timers = timers
        self._address, self._ha_address = addresses

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.GET_ALL_CONSUMER_OFFSET, None, self.offsets)
        router.add(RequestCode.GET_ALL_DELAY_OFFSET, None, self.delays)
        router.add(RequestCode.GET_TIMER_CHECK_POINT, None, self.timer_progress)
        router.add(RequestCode.GET_TIMER_METRICS, None, self.timer_metrics)
        router.add(RequestCode.EXCHANGE_BROKER_HA_INFO, None, self.addresses)
        router.add(RequestCode.COMPARE_LOG, CompareLogRequestHeader, self.compare)
        if self._serves_log:
            router.add(RequestCode.READ_LOG_RANGE, ReadLogRangeRequestHeader, self.read_range)

    def offsets(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """Handle 43: return the content of ``consumerOffset.json``."""
        body = orjson.dumps(self._store.consumer_offsets.as_json(), option=orjson.OPT_NON_STR_KEYS)
        return response_to(command, body=body)

    def delays(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """Handle 45: return the content of ``delayOffset.json``."""
        return response_to(command, body=orjson.dumps(self._delays.shown(), option=orjson.OPT_NON_STR_KEYS))

    def timer_progress(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """Handle 60: return the delivery progress of timer messages."""
        progress = self._timers.progress()
        end = self._store.queue_end(TIMER_TOPIC, 0)
        body = _TIMERS.pack(progress.read_ms, 0, progress.known_offset, end, 0, 0, 0)
        return response_to(command, body=body)

    def timer_metrics(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """Handle 61: return an empty count of pending timer messages; this broker does not count them per topic."""
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        return response_to(command, body=dumps({"dataVersion": version, "timingCount": {}}))

    def addresses(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """Handle 906: return the addresses of this master; without a header if the broker is not a master."""
        if self._ha_address is None:
            return response_to(command)
        return response_to(
            command, header=ExchangeHaInfoResponseHeader(self._ha_address, self._store.flushed_offset, self._address)
        )

    async def compare(
        self, _: Connection, command: RemotingCommand, header: CompareLogRequestHeader
    ) -> RemotingCommand:
        """Handle 31021: compare a range of the log with a checksum. The body is ``same`` or ``other``."""
        if not 0 <= header.size <= MAX_FRAME_BYTES:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{header.size} bytes cannot be compared")
        end = header.offset + header.size
        try:
            data = await run_to_completion(partial(self._store.read_log, header.offset, end, wait=True))
        except ValueError:
            return response_to(command, body=b"other")
        is_same = crc32(b"".join(map(bytes, data))) == header.crc32
        return response_to(command, body=b"same" if is_same else b"other")

    async def read_range(
        self, _: Connection, command: RemotingCommand, header: ReadLogRangeRequestHeader
    ) -> RemotingCommand:
        """Handle 31015: return validated records of closed segments. A store error becomes an error response."""
        segments = self._store.closed_segments()
        data = await run_to_completion(partial(segments.read_valid, header.begin, header.limit, RANGE_BYTES))
        return response_to(command, body=data)
