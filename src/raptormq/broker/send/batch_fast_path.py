"""Fast path for the most common batches (code 320): stored as one record, without special flags or properties.

The fast path refuses no request. :mod:`.admission` implements all rules and handles the other requests. The requests of
one producer differ only in queue, time and unique key. The other header fields and properties are parsed once and
cached by their text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.inner_batch import ROOM_FOR_BASE, look_inside
from raptormq.broker.tag_code import tag_code
from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.encryption import is_encrypted_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.properties import find_property, may_be_broker_only_in
from raptormq.protocol.record import SysFlag
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.protocol.topic_names import NOT_SENDABLE
from raptormq.storage.queue import PendingBatch

_FIELDS = itemgetter(*"abcdefghij")
_WRITE = int(Perm.WRITE)
_UNUSUAL_FLAGS = ~int(SysFlag.MULTI_TAGS | SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_UNIQUE_KEY = "UNIQ_KEY\x01"
_MAX_TEXTS = 256
_MAX_PROPERTIES_BYTES = names.MAX_PROPERTIES_BYTES - ROOM_FOR_BASE
_INT32, _INT64 = 1 << 31, 1 << 63
_new_tuple = tuple.__new__


class _Text(NamedTuple):
    """Parsed properties of a batch. The unique key is between ``before`` and ``behind``."""

    before: bytes
    behind: bytes
    wait: bool
    has_keys: bool
    tag_code: int | None
    """None if the batch has no TAGS."""


class BatchFastPath:
    """Accepts common batches. ``common`` contains the properties that the broker adds to every message."""

    def __init__(self, configs: Mapping[str, TopicConfig], common: bytes) -> None:
        self._configs = configs
        self._common = common

    def admit(self, request: RemotingCommand, born_host: bytes, max_body_bytes: int) -> AcceptedSend | None:
        """Return the accepted send for a request 320, or None if :mod:`.admission` must handle it."""
        body = request.body
        try:
            _, topic, _, _, queue_text, sys_flag, born_text, flag, text, times = _FIELDS(request.ext_fields)
            queue_id, born, config = int(queue_text), int(born_text), self._configs[topic]
        except (KeyError, ValueError):
            return None
        header = _header(topic, sys_flag, flag, times)
        if (
            header is None
            or not config.perm & _WRITE
            or not 0 <= queue_id < config.write_queue_nums
            or not -_INT64 <= born < _INT64
            or config.attributes.get(QUEUE_TYPE) != BATCH_CQ
            or config.topic_filter_type == "MULTI_TAG"
            or len(body) > max_body_bytes
            or is_encrypted_body(body)
        ):
            return None
        begin = text.find(_UNIQUE_KEY) + len(_UNIQUE_KEY)
        end = text.find(names.PAIR_SEPARATOR, begin)
        unique_key = text[begin:end]
        known = _text(text[:begin], text[end:]) if end > 0 and unique_key.isalnum() else None
        if known is None:
            return None
        try:
            messages, texts, keys, tag = look_inside(body, unique_key, has_keys=known.has_keys)
        except RecordError:
            return None
        before, behind, wait, _, code = known
        properties = b"%b%b%b%bINNER_NUM\x01%d\x02" % (before, unique_key.encode(), behind, self._common, messages)
        if code is None:
            code = 0
            if tag:
                properties += b"TAGS\x01%b\x02" % tag
                code = tag_code(properties)
        if len(properties) > _MAX_PROPERTIES_BYTES:
            return None
        fields = topic, queue_id, body, properties, code, born, born_host, header[1], header[0], 0, 0
        record = _new_tuple(PendingBatch, fields)
        record.messages, record.texts, record.keys = messages, texts, keys
        return _new_tuple(AcceptedSend, (request, record, False, 1, queue_id, unique_key, wait, "", messages, ""))


@lru_cache(maxsize=_MAX_TEXTS)
def _header(topic: str, sys_flag_text: str, flag_text: str, times_text: str) -> tuple[int, int] | None:
    """Return sysFlag and flag of the record, or None if :mod:`.admission` must handle the request."""
    try:
        sys_flag, flag, times = int(sys_flag_text), int(flag_text), int(times_text)
    except ValueError:
        return None
    if sys_flag & _UNUSUAL_FLAGS or not -_INT32 <= flag < _INT32 or not 0 <= times < _INT32:
        return None
    if topic[:1] == "%" or topic in NOT_SENDABLE or len(topic) > 127:
        return None
    return sys_flag | INNER_BATCH, flag


@lru_cache(maxsize=_MAX_TEXTS)
def _text(before: str, behind: str) -> _Text | None:
    """Parse the properties before and after the value of the first unique key. Return None if :mod:`.admission` must
    handle the request.
    """
    text = f"{before}0{behind}"
    if find_property(text, names.UNIQUE_KEY) != "0" or _UNIQUE_KEY in behind:
        return None
    if find_property(text, names.INNER_NUM) is not None or may_be_broker_only_in(text.encode()):
        return None
    if "DELAY\x01" in text or "TIMER_D" in text:
        return None
    if behind[-1] != names.PAIR_SEPARATOR:
        behind += names.PAIR_SEPARATOR
    return _Text(
        before.encode(),
        behind.encode(),
        "WAIT\x01false" not in text,
        bool((find_property(text, names.KEYS) or "").encode().strip()),
        None if find_property(text, names.TAGS) is None else tag_code(text.encode()),
    )
