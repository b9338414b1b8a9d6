"""Validates send requests and converts them to records (``SendMessageProcessor``).

This is the most frequently executed code of the broker. It avoids a full parse of the properties and a header object.
If a header field is invalid, the request is decoded again with its header declaration, which raises a detailed error.

The broker appends MSG_REGION, TRACE_ON and CLUSTER to the properties, and UNIQ_KEY if the producer sent none. If a
property occurs twice, the last value applies. Properties that only brokers set (:data:`~names.BROKER_ONLY`) are
dropped from the message and from the messages of a batch, unless the batch is compressed or encrypted. The records of
a list (320) are otherwise stored unchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import NoReturn

from raptormq.broker.config import BrokerConfig, max_body_bytes
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.delay.delayed_message import Fit, delay_level, to_delayed
from raptormq.broker.delay.timer_message import TimerRules, set_timer
from raptormq.broker.retries import RetryTopics
from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.auto_create import TopicCreator
from raptormq.broker.send.batch_fast_path import BatchFastPath
from raptormq.broker.send.inner_batch import HasBrokerOnly, require_flat, wrap
from raptormq.broker.tables import TopicTable
from raptormq.broker.tag_code import tag_code, tag_codes
from raptormq.broker.transaction.half_message import is_half, to_half
from raptormq.broker.validation import no_write_queue
from raptormq.errors import HeaderError, MessageError, RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import scan_batch, with_valid_utf8, without_broker_only_properties
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.copied_properties import ROOM_AT_BROKERS, merge_properties
from raptormq.protocol.delay_levels import parse_delay_levels
from raptormq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from raptormq.protocol.inner_batch import INNER_BATCH, is_inner_batch
from raptormq.protocol.message import DELAY_PROPERTIES
from raptormq.protocol.message_id import UniqueIdFactory, decode_host
from raptormq.protocol.properties import BROKER_ONLY, find_property, may_be_broker_only_in, without_broker_only
from raptormq.protocol.recall_handle import RecallHandle, encode_recall_handle
from raptormq.protocol.record import SysFlag
from raptormq.protocol.schema import decode_header
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.protocol.topic_names import (
    DLQ_PREFIX,
    NOT_SENDABLE,
    REVIVE_PREFIX,
    TIMER_TOPIC,
    is_derived_topic,
)
from raptormq.storage.queue import PendingBatch, PendingList, PendingRecord
from raptormq.transport.router import Refused

MAX_LIST_RECORDS = 65_536
"""Maximum number of messages in a list. The format of a list has no limit, but 190,000 empty messages fit in 4 MiB and
would block other requests. A batch that is stored as one record has a 16-bit limit (``MAX_BATCH_RECORDS``).
"""
_INT32 = 1 << 31
_INT64 = 1 << 63
_LEAST_INT32, _LEAST_INT64 = -_INT32, -_INT64
# Plain integers, because attribute access on an enumeration is slow and an IntFlag operation takes a microsecond.
_SEND_V1, _SEND_BATCH = int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_BATCH_MESSAGE)
_WRITE = int(Perm.WRITE)
_MULTI_TAGS = int(SysFlag.MULTI_TAGS)
_TRANSACTION = int(SysFlag.TRANSACTION_ROLLBACK)
_SPECIAL_FLAGS = _TRANSACTION | int(SysFlag.INNER_BATCH) | int(SysFlag.NEED_UNWRAP)
_UNDECIDED_OR_ROLLED_BACK = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))
_REQUIRED_V2 = itemgetter(*"abcdefgh")
_REQUIRED_V1 = itemgetter(
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
)
_V1 = _REQUIRED_V1, "reconsumeTimes", "maxReconsumeTimes", "properties"
_V2 = _REQUIRED_V2, "j", "l", "i"
"""Required fields of a send header, and the names of three optional fields."""
_OTHER_TYPES = DELAY_PROPERTIES | {names.SHARDING_KEY}
"""Properties of delayed and ordered messages, which have no priority."""
_PROPERTIES = itemgetter(3)
_TIMES = names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS
_has_special = re.compile(
    names.pattern_of({*BROKER_ONLY, *_TIMES, names.TRANSACTION_PREPARED, names.INNER_NUM, names.PRIORITY})
).search
"""Finds properties, except DELAY, with which a message is not stored as it is."""
_new_tuple = tuple.__new__
"""Creates a named tuple in half the time of its constructor."""
_Place = tuple[str, int, int, int, bytes, int, int]
"""Topic, queue id, sysFlag, born timestamp, born host, flag, reconsume times."""


class Admission:
    """Validates sends and converts them to records."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        unique_ids: UniqueIdFactory,
        clock: Callable[[], int],
        retries: RetryTopics,
        timers: TimerRules,
        copies: CopyProperties,
    ) -> None:
        self._config = config
        self._policies = policies = config.policies
        self._timers = timers
        self._copies = copies
        self._broker_name = config.identity.broker_name
        self._configs = topics.configs
        self._retries = retries
        self._level_count = len(parse_delay_levels(config.storage.delay_levels))
        self._creator = TopicCreator(topics, retries, policies)
        self._unique_ids = unique_ids
        self._clock = clock
        self.settings_changed()
        self._suffix = names.encode_properties(
            {
                names.MSG_REGION: policies.region_id,
                names.TRACE_SWITCH: str(policies.trace_on).lower(),
                names.CLUSTER: config.identity.cluster_name,
            }
        )
        self._common_properties = self._suffix.encode()
        self._usual_batches = BatchFastPath(self._configs, self._common_properties)

    def knows_topic(self, topic: str) -> bool:
        """Return whether the topic exists."""
        return topic in self._configs

    def settings_changed(self) -> None:
        """Apply changes of settings at run time."""
        self._max_body_bytes = max_body_bytes(self._config)
        self._writable = bool(self._policies.permission & _WRITE)

    def admit(self, request: RemotingCommand, born_host: bytes) -> AcceptedSend:
        """Return the accepted send for ``request``.

        Raises:
            HeaderError: a header field is missing or not a number in range.
            Refused: the send is not allowed. The error has the response code.
        """
        if request.code == _SEND_BATCH and self._writable:
            usual = self._usual_batches.admit(request, born_host, self._max_body_bytes)
            if usual is not None:
                return usual
        ext = request.ext_fields
        required, times_name, limit_name, text_name = _V1 if request.code == _SEND_V1 else _V2
        try:
            _, topic, template, queues, queue_text, sys_flag_text, born_text, flag_text = required(ext)
            queue_id, sys_flag, flag = int(queue_text), int(sys_flag_text), int(flag_text)
            born, times = int(born_text), int(ext.get(times_name, 0))
        except (KeyError, ValueError):
            _raise_header_error(request)
        if not (
            _LEAST_INT32 <= flag < _INT32
            and 0 <= sys_flag < _INT32
            and _LEAST_INT64 <= born < _INT64
            and 0 <= times < _INT32
            and _LEAST_INT32 <= queue_id < _INT32
        ):
            _raise_header_error(request)
        config = self._configs.get(topic)
        if config is None:
            config = self._creator.create(topic, template, queues)
        if not config.perm & _WRITE or not self._writable or topic in NOT_SENDABLE:
            self._refuse_write(topic)
        if queue_id < 0:
            queue_id = random.randrange(config.write_queue_nums)
        elif queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            remark = no_write_queue(config, queue_id, "{}:{}".format(*decode_host(born_host)))
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if topic[0] == "%":
            topic, queue_id = self._redirected(topic, queue_id, times, ext.get(limit_name))
        text = ext.get(text_name, "")
        wrapped = bool(sys_flag & _SPECIAL_FLAGS) and self._check_flags(text, sys_flag, topic)
        if config.topic_filter_type == "MULTI_TAG":
            sys_flag |= _MULTI_TAGS
        place = topic, queue_id, sys_flag, born, born_host, flag, times
        if request.code == _SEND_BATCH or wrapped or ext.get("m") == "true" or ext.get("batch") == "true":
            return self._admit_batch(request, place, text)
        return self._admit_single(request, place, text)

    def _redirected(self, topic: str, queue_id: int, times: int, limit: str | None) -> tuple[str, int]:
        """Return the topic and queue of a message to a ``%`` topic, the dead-letter topic after too many retries."""
        dead = self._retries.redirected(topic, times, limit)
        return (topic, queue_id) if dead is None else (dead, 0)

    def _admit_single(self, request: RemotingCommand, place: _Place, text: str) -> AcceptedSend:
        topic, queue_id, sys_flag, born, born_host, flag, times = place
        body = request.body
        if len(body) > self._max_body_bytes:
            self._refuse_size()
        level, half, out_ms, handle = 0, False, None, ""
        if _has_special(text) is not None or "DELAY\x01" in text:
            queue_id, text, level, half, out_ms = self._special(topic, queue_id, times, text)
        unique_key = _unique_key(text)
        if text and text[-1] != "\x02":
            text += "\x02"
        if unique_key is None:
            unique_key = self._unique_ids.next_id(self._clock())
            text = f"{text}UNIQ_KEY\x01{unique_key}\x02"
        properties = (text + self._suffix).encode()
        if len(properties) > names.MAX_PROPERTIES_BYTES:
            properties = self._shortened(topic, properties)
        code = tag_code(properties)
        fields = topic, queue_id, body, properties, code, born, born_host, flag, sys_flag, times, 0
        record = _new_tuple(PendingRecord, fields)
        if half:
            record = self._changed(to_half, record, unique_key)
        elif level > 0:
            record = self._changed(to_delayed, record, level, self._level_count, self._fit_for(topic))
        elif out_ms is not None:
            record = self._changed(set_timer, record, out_ms, self._fit_for(topic))
            if topic[0] != "%":
                handle = encode_recall_handle(RecallHandle(topic, self._broker_name, str(out_ms + 1), unique_key))
        wait = "WAIT\x01false" not in text
        later = "" if record.topic == topic else topic
        return _new_tuple(AcceptedSend, (request, record, False, 1, queue_id, unique_key, wait, handle, 0, later))

    def _special(self, topic: str, queue_id: int, times: int, text: str) -> tuple[int, str, int, bool, int | None]:
        """Return queue and properties of a message that may have a priority, a delay or properties which only brokers
        set, its delay level, whether it is a half message, and TIMER_OUT_MS of a timer message.
        """
        if "_PRIORITY_\x01" in text:
            queue_id, text = self._by_priority(topic, queue_id, text)
        _refuse_inner_number(text)
        level = _delay_level(text, topic)
        half = is_half(text) and not (times and level > 0)
        out_ms = None if level > 0 else self._timer(text, half=half)
        if half and self._policies.reject_transactions:
            raise Refused(
                ResponseCode.NO_PERMISSION, "this broker does not accept transactions (rejectTransactionMessage)"
            )
        if not _is_internal(topic):
            text = without_broker_only(text)
        return queue_id, text, level, half, out_ms

    def _by_priority(self, topic: str, queue_id: int, text: str) -> tuple[int, str]:
        """Return the queue and the properties of a message with a priority (RIP-80).

        The priority is the queue number, regardless of the type of the topic. The priority of a delayed, ordered or
        transactional message is removed.
        """
        priority = names.find_number(text, names.PRIORITY)
        if priority is None:
            return queue_id, text
        found = names.decode_properties(text)
        if is_half(text) or not _OTHER_TYPES.isdisjoint(found):
            del found[names.PRIORITY]
            return queue_id, names.join_properties(found)
        config = self._configs.get(topic)
        return min(priority, config.write_queue_nums - 1) if config is not None else 0, text

    def _fit_for(self, topic: str) -> Fit:
        """Return the function that merges added properties. Only retries may drop properties to make space."""
        return partial(self._copies.fit, topic) if is_derived_topic(topic) else merge_properties

    def _shortened(self, topic: str, properties: bytes) -> bytes:
        """Shorten the properties of a message for a retry or dead-letter topic, with space for the properties of a
        delayed message. Refuse messages for other topics.
        """
        if not is_derived_topic(topic):
            self._refuse_size()
        found = names.decode_properties(properties.decode())
        limit = names.MAX_PROPERTIES_BYTES - ROOM_AT_BROKERS
        return self._copies.fit(topic, found, {}, limit=limit).encode()

    def _timer(self, text: str, *, half: bool) -> int | None:
        out_ms = self._timers.out_ms(text) if "TIMER_D" in text else None
        if half and out_ms is not None:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a transactional message cannot have a delivery time")
        return out_ms

    @staticmethod
    def _changed(change: Callable[..., PendingRecord], *arguments: object) -> PendingRecord:
        try:
            return change(*arguments)
        except MessageError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None

    def _admit_batch(self, request: RemotingCommand, place: _Place, text: str) -> AcceptedSend:
        topic, queue_id, sys_flag, born, born_host, _, _ = place
        if len(request.body) > self._max_body_bytes:
            self._refuse_size()
        if is_derived_topic(topic) or len(topic) > 127:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot be sent to topic {topic}")
        if sys_flag & _TRANSACTION:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction")
        may_wait = "DELAY\x01" in text or "TIMER_D" in text
        if may_wait and (_delay_level(text, topic) > 0 or self._timer(text, half=False) is not None):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the messages of a batch cannot be delayed")
        unique_key = _unique_key(text) or ""
        if unique_key and self._configs[topic].is_batch:
            return self._admit_whole(request, place, text, unique_key)
        if sys_flag & INNER_BATCH:
            _refuse_inner_batch()
        body = request.body
        try:
            found = scan_batch(body, MAX_LIST_RECORDS, check_crc=True)
            joined = b"".join(map(_PROPERTIES, found))
            require_flat(joined, map(_PROPERTIES, found))
            if may_be_broker_only_in(joined):
                body = without_broker_only_properties(body)
                found = scan_batch(body)
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        rows = found if joined.isascii() else with_valid_utf8(found)
        if not rows:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        longest = names.MAX_PROPERTIES_BYTES - len(self._common_properties) - 1
        may_be_longer = len(body) > longest or rows is not found
        if may_be_longer and len(max(map(_PROPERTIES, rows), key=len)) > longest:
            self._refuse_size()
        pending = PendingList(
            topic, queue_id, body, rows, tag_codes(rows), self._common_properties, born, born_host, sys_flag
        )
        return AcceptedSend(request, pending, True, len(rows), queue_id, unique_key, "WAIT\x01false" not in text)

    def _admit_whole(self, request: RemotingCommand, place: _Place, text: str, unique_key: str) -> AcceptedSend:
        """Admit a batch that is stored as one record."""
        topic, queue_id, sys_flag, born, born_host, flag, _ = place
        body = request.body
        text = without_broker_only(text)
        try:
            try:
                properties, messages, texts, keys = wrap(body, text, unique_key, self._common_properties, sys_flag)
            except HasBrokerOnly:
                body = without_broker_only_properties(body)
                properties, messages, texts, keys = wrap(
                    body, text, unique_key, self._common_properties, sys_flag, is_clean=True
                )
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        code, sys_flag = tag_code(properties), sys_flag | INNER_BATCH
        fields = topic, queue_id, body, properties, code, born, born_host, flag, sys_flag, 0, 0
        record = _new_tuple(PendingBatch, fields)
        record.messages, record.texts, record.keys = messages, texts, keys
        wait = "WAIT\x01false" not in text
        return _new_tuple(AcceptedSend, (request, record, False, 1, queue_id, unique_key, wait, "", messages, ""))

    def _check_flags(self, text: str, sys_flag: int, topic: str) -> bool:
        """Check rarely used flags. Return whether the request is an inner batch (INNER_BATCH and NEED_UNWRAP).

        Clients send compressed and encrypted batches in this form, because brokers cannot count their messages.
        """
        if sys_flag & ~_TRANSACTION & _SPECIAL_FLAGS:
            if not is_inner_batch(sys_flag) or self._configs[topic].attributes.get(QUEUE_TYPE) != BATCH_CQ:
                _refuse_inner_batch()
            return True
        if (sys_flag & _TRANSACTION) in _UNDECIDED_OR_ROLLED_BACK and not is_half(text):
            # Consumers never receive a message with these bits.
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "a message with transaction bits needs the property TRAN_MSG=true"
            )
        return False

    def _refuse_write(self, topic: str) -> NoReturn:
        if not self._writable:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker does not accept messages (brokerPermission)")
        if topic in NOT_SENDABLE:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        raise Refused(ResponseCode.NO_PERMISSION, f"topic {topic} is not writable")

    def _refuse_size(self) -> NoReturn:
        """Refuse a message that is too large, with RocketMQ's remark."""
        limits = f"msg body length limit {self._max_body_bytes}B, msg properties length limit 32KB."
        remark = f"the message is illegal, maybe msg body or properties length not matched. {limits}"
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)


def _is_internal(topic: str) -> bool:
    """Return whether messages of ``topic`` are records of a broker, which other brokers send
    (:func:`~raptormq.broker.security.required_permissions.to_send`).
    """
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)


def _unique_key(text: str) -> str | None:
    at = text.rfind("UNIQ_KEY\x01")
    if at > 0 and text[at - 1] != "\x02":  # the end of a longer property name
        return find_property(text, "UNIQ_KEY")
    if at < 0:
        return None
    end = text.find("\x02", at)
    return (text[at + 9 : end] if end >= 0 else text[at + 9 :]) or None


def _raise_header_error(request: RemotingCommand) -> NoReturn:
    header = SendMessageRequestHeader if request.code == _SEND_V1 else SendMessageRequestHeaderV2
    decode_header(header, request.ext_fields)
    raise HeaderError("a number in the send header is out of range")


def _delay_level(text: str, topic: str) -> int:
    """Return the delay level in the properties, 0 for a dead-letter topic."""
    try:
        return 0 if topic.startswith(DLQ_PREFIX) else delay_level(text)
    except MessageError as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None


def _refuse_inner_batch() -> NoReturn:
    raise Refused(
        ResponseCode.MESSAGE_ILLEGAL, "inner batches are accepted only for BatchCQ topics and only with a unique key"
    )


def _refuse_inner_number(text: str) -> None:
    """Refuse a single message with INNER_NUM: consumers would decode it as a batch."""
    if names.INNER_NUM in names.decode_properties(text):
        _refuse_inner_batch()
