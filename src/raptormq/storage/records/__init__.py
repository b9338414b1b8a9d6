"""Converts messages to log bytes and back: packing and appending, parsing, scanning, dispatch to the queues.

Depends on the layout of records, not on the readers of queues or on responses.
"""

from __future__ import annotations

from raptormq.storage.records.appender import NOT_IN_QUEUE, Appender
from raptormq.storage.records.dispatcher import Dispatcher, DispatchLag, IndexBuilder, assign_queues
from raptormq.storage.records.parser import (
    ParsedRecord,
    TimerCode,
    are_valid_records,
    belongs_to_queue,
    decode_timer_code,
    encode_timer_code,
    parse_record,
    peek,
    peek_body_at,
    peek_physical_offset,
    peek_properties,
    peek_store_timestamp,
)
from raptormq.storage.records.raw_range import last_record_end, next_record_end, parse_range, valid_end
from raptormq.storage.records.scanner import ConcurrentScanner, DamagedRange, LogScanner

__all__ = [
    "NOT_IN_QUEUE",
    "Appender",
    "ConcurrentScanner",
    "DamagedRange",
    "DispatchLag",
    "Dispatcher",
    "IndexBuilder",
    "LogScanner",
    "ParsedRecord",
    "TimerCode",
    "are_valid_records",
    "assign_queues",
    "belongs_to_queue",
    "decode_timer_code",
    "encode_timer_code",
    "last_record_end",
    "next_record_end",
    "parse_range",
    "parse_record",
    "peek",
    "peek_body_at",
    "peek_physical_offset",
    "peek_properties",
    "peek_store_timestamp",
    "valid_end",
]
