"""Requests of a slave to its master on the port for clients: the tables (``SlaveSynchronize``) and log comparisons.

The master may be Apache RocketMQ 4.9 or newer. The methods for optional requests return None if the master does not
support the request.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from isal.isal_zlib import crc32

from raptormq.errors import BodyError, ConnectError, ServerError
from raptormq.protocol.bodies.members import object_at, parse_integer
from raptormq.protocol.bodies.queues import decode_kv_table
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.ha import CompareLogRequestHeader, ReadLogRangeRequestHeader
from raptormq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader, ViewMessageRequestHeader
from raptormq.protocol.headers.topic import AllTopicsRequestHeader
from raptormq.protocol.schema import Header
from raptormq.transport.pool import ConnectionPool

_TIMEOUT_S = 10.0
PROMOTED_AT = "haPromotedAt"
"""Entry of the runtime information of a master that was promoted: the end of its log at that time."""
_TIMERS = struct.Struct(">qqq")


class MasterClient:
    """Sends requests to the master at :attr:`address`."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.address = ""
        """``host:port`` of the port for clients; empty until a name server has returned a master."""
        self.ha_address = ""
        """``host:port`` of the HA port that the master has registered."""

    def found(self, address: str, ha_address: str) -> None:
        """Set the addresses that a name server has returned."""
        self.address, self.ha_address = address, ha_address

    async def close(self) -> None:
        """Close the connection."""
        await self._pool.close(0.2)

    async def _request(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        if not self.address:
            raise ConnectError("no name server has a master with this brokerName")
        answer = await self._pool.request(self.address, request(code, header), _TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ServerError(answer.code, answer.remark or "")
        return answer

    async def _request_if_supported(self, code: RequestCode, header: Header | None = None) -> RemotingCommand | None:
        """Send a request. Return None if the master does not support it."""
        try:
            return await self._request(code, header)
        except ServerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise

    # --- tables ---

    async def topics(self) -> TopicConfigTable:
        """Return the topics (21), with topic ids if the master has them."""
        answer = await self._request(RequestCode.GET_ALL_TOPIC_CONFIG, AllTopicsRequestHeader(with_topic_ids=True))
        return TopicConfigTable.from_json(answer.body)

    async def commit(self, topic: str, group: str, queue_id: int, offset: int, topic_id: str | None) -> None:
        """Commit the offset of a group (15).

        Raises:
            ServerError: the master refuses, for example because the topic was deleted, or has another id.
            RaptorMQError: the master did not respond.
        """
        header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset, topic_id)
        await self._request(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def groups(self) -> Mapping[str, Any]:
        """Return the content of ``subscriptionGroup.json`` (201)."""
        return loads_object((await self._request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)

    async def offsets(self) -> dict[str, dict[int, int]]:
        """Return the consumer offsets by ``topic@group`` and queue id (43)."""
        table = object_at(loads_object((await self._request(RequestCode.GET_ALL_CONSUMER_OFFSET)).body), "offsetTable")
        try:
            return {
                key: {int(queue): parse_integer(offset) for queue, offset in row.items()} for key, row in table.items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"the master's consumer offsets cannot be read: {error}") from error

    async def delays(self) -> tuple[dict[int, int], int | None]:
        """Return the first undelivered queue offset by delay level, and ``logOffset`` if the file has it (45)."""
        value = loads_object((await self._request(RequestCode.GET_ALL_DELAY_OFFSET)).body)
        try:
            offsets = {int(level): parse_integer(offset) for level, offset in object_at(value, "offsetTable").items()}
            place = value.get("logOffset")
            return offsets, None if place is None else parse_integer(place)
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"the master's delay offsets cannot be read: {error}") from error

    async def timers(self) -> tuple[int, int] | None:
        """Return the timer checkpoint (60): the delivery time in ms up to which timer messages are delivered, and the
        queue offset before which this is true. None if the master does not support the request.
        """
        answer = await self._request_if_supported(RequestCode.GET_TIMER_CHECK_POINT)
        if answer is None or len(answer.body) < _TIMERS.size:
            return None
        read_ms, _, known = _TIMERS.unpack_from(answer.body)
        return read_ms, known

    async def request_modes(self) -> Mapping[str, Any] | None:
        """Return the content of ``messageRequestMode.json`` (402); None if the master does not have it."""
        answer = await self._request_if_supported(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        return None if answer is None or not answer.body else loads_object(answer.body)

    # --- the log ---

    async def _settings(self) -> dict[str, str]:
        text = (await self._request(RequestCode.GET_BROKER_CONFIG)).body.decode(errors="replace")
        return dict(line.partition("=")[::2] for line in text.splitlines())

    async def broker_name(self) -> str:
        """Return ``brokerName`` of the broker (26); empty if the response lacks it."""
        return (await self._settings()).get("brokerName", "")

    async def segment_size(self) -> int | None:
        """Return ``mappedFileSizeCommitLog`` of the master (26); None if the response lacks it."""
        found = (await self._settings()).get("mappedFileSizeCommitLog", "")
        return int(found) if found.isdecimal() else None

    async def log_bounds(self) -> tuple[int, int]:
        """Return the first and the end offset of the master's log (28)."""
        figures = decode_kv_table((await self._request(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
        try:
            return int(figures["commitLogMinOffset"]), int(figures["commitLogMaxOffset"])
        except (KeyError, ValueError) as error:
            raise BodyError(f"the master's response lacks the bounds of its log: {error}") from error

    async def promoted_at(self) -> int:
        """Return the end of the broker's log at its promotion (28); 0 if it was not promoted or does not report it."""
        found = decode_kv_table((await self._request(RequestCode.GET_BROKER_RUNTIME_INFO)).body).get(PROMOTED_AT, "")
        return int(found) if found.isdecimal() else 0

    async def read_range(self, begin: int, limit: int) -> bytes:
        """Return records of the master's log that begin at ``begin`` and end at or before ``limit``.

        Raises:
            RaptorMQError: the master did not respond, does not support the request, or its log is damaged there, too.
        """
        header = ReadLogRangeRequestHeader(begin, limit)
        return (await self._request(RequestCode.READ_LOG_RANGE, header)).body

    async def has_record(self, offset: int, record: bytes) -> bool:
        """Return whether the master has ``record`` at ``offset`` of its log."""
        compared = CompareLogRequestHeader(offset, len(record), crc32(record))
        answer = await self._request_if_supported(RequestCode.COMPARE_LOG, compared)
        if answer is not None:
            return answer.body == b"same"
        try:
            return (
                await self._request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
            ).body == record
        except ServerError:
            return False
