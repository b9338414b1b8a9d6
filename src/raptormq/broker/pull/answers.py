"""Responses to pulls (``PullMessageProcessor``). The code of a response without messages depends on the result of the
read:

=====================================  ==============================================
NO_MATCHED_MESSAGE, MESSAGE_WAS_...    20: pull again from ``nextBeginOffset``
NO_..._QUEUE                           19 for offset 0, otherwise 21
OFFSET_OVERFLOW_ONE                    19: no new message
OFFSET_OVERFLOW_BADLY, TOO_SMALL       21: pull again from ``nextBeginOffset``
OFFSET_RESET                           21: an administrator has reset the offset
=====================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.metrics import Counters, Statistics
from raptormq.broker.pull.request import PullRequest
from raptormq.broker.tables import TopicTable
from raptormq.broker.validation import is_other_topic, topic_recreated
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import response_to
from raptormq.protocol.headers.pull import PullMessageResponseHeader
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.storage.read import GetResult, GetStatus
from raptormq.transport.router import answer, failure

_FOUND = GetStatus.FOUND
_CODES = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


def empty_code(result: GetResult, offset: int) -> ResponseCode:
    """Return the response code for a read at ``offset`` whose ``result`` is not FOUND."""
    code = _CODES.get(result.status)
    if code is not None:
        return code
    # The queue does not exist or is empty. This is normal for a consumer that starts at 0. Another offset belongs to a
    # deleted topic of this name.
    return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED


class PullAnswers:
    """Sends and counts the responses to pulls."""

    def __init__(
        self,
        topics: TopicTable,
        counters: Counters,
        statistics: Statistics,
        next_broker: Callable[[str, GetResult], int] = lambda _group, _result: 0,
    ) -> None:
        """``next_broker`` returns the id of the broker from which a group pulls next, after a read."""
        self._next_broker = next_broker
        self._topics = topics
        self._counters = counters
        self._statistics = statistics

    def send(self, pull: PullRequest, result: GetResult) -> None:
        """Answer ``pull`` with the result of a read."""
        header, topic_id = pull.header, pull.topic_id
        if topic_id is not None and is_other_topic(self._topics, header.topic, topic_id):  # deleted during the pull
            self.fail(pull, topic_recreated(header.topic, topic_id))
            return
        is_found = result.status is _FOUND
        code, remark = (0, "FOUND") if is_found else (empty_code(result, pull.offset), result.status.value)
        next_broker = self._next_broker(header.consumer_group, result)
        fields = PullMessageResponseHeader(next_broker, result.next_offset, result.min_offset, result.max_offset)
        if header.topic_id == TOPIC_ID_QUERY:
            fields.topic_id = topic_id
        response = response_to(pull.command, code, remark, fields)
        counters, topic, group = self._counters, header.topic, header.consumer_group
        self._statistics.pull_offsets[topic, group, header.queue_id] = result.next_offset
        if is_found:
            pull.connection.read_promptly()  # the consumer pulls again soon
            counters.pulls_found += 1
            counters.messages_out += result.message_count
            counters.bytes_out += result.total_bytes
            self._statistics.count_get(topic, group, result.message_count, result.total_bytes)
        else:
            counters.pulls_empty += 1
        if not pull.command.is_oneway:
            pull.connection.send_slices(response, result.buffers, result.copied_bytes)

    def fail(self, pull: PullRequest, error: Exception) -> None:
        """Answer ``pull`` with the code and remark of ``error``."""
        answer(pull.connection, pull.command, failure(pull.command, error))
