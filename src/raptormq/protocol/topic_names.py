"""Names of topics and groups: what is allowed, what is reserved (Apache RocketMQ ``TopicValidator``, ``MixAll``)."""

from __future__ import annotations

import re

from raptormq.errors import MessageError

MAX_TOPIC_LENGTH = 127
MAX_DERIVED_TOPIC_LENGTH = 255
"""Limit for ``%RETRY%`` and ``%DLQ%`` topics, whose names are longer than the name of their group."""
MAX_GROUP_LENGTH = 120

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

AUTO_CREATE_TOPIC = "TBW102"
"""Topic whose configuration is the template of topics that are created by their first message."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
"""Topic of the half messages that RocketMQ 5.5 stores in RocksDB (``transRocksDBEnable``)."""
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TABLES_TOPIC = "rmq_sys_REPLICATED_TABLES"
"""Specific to RaptorMQ: records by which the leader of a broker group replicates changes of its tables, including the
passwords of users. No client reads or writes this topic."""
STAGED_TOPIC = "rmq_sys_STAGED"
"""Specific to RaptorMQ: lists of messages that are stored and published later. No client reads this topic or sends to
it."""
STAGED_COMMITS_TOPIC = "rmq_sys_STAGED_COMMITS"
"""Specific to RaptorMQ: the decisions which staged lists are published. No client reads this topic or sends to it."""
HIDDEN_TOPICS = frozenset({TABLES_TOPIC, STAGED_TOPIC, STAGED_COMMITS_TOPIC})
"""Internal topics, whose records no request returns."""

NOT_SENDABLE = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TABLES_TOPIC,
        STAGED_TOPIC,
        STAGED_COMMITS_TOPIC,
    }
)
SYSTEM_TOPICS = NOT_SENDABLE | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TIMER_TOPIC, TRACE_TOPIC}
SYSTEM_PREFIX = "rmq_sys_"
REVIVE_PREFIX = f"{SYSTEM_PREFIX}REVIVE_LOG_"
"""Prefix of the topics in which brokers record popped and acknowledged messages. The name of the cluster follows."""
SYSTEM_GROUPS = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CID_SYS_RMQ_TRANS",
        "DEFAULT_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_SHOWN = 40


def retry_topic(group: str) -> str:
    """Return the topic of messages that are redelivered to ``group``."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the dead-letter topic of ``group``."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic of the replies to requests, one for each cluster."""
    return f"{cluster}_REPLY_TOPIC"


def is_derived_topic(topic: str) -> bool:
    """Whether this is the retry or dead-letter topic of a group. Brokers create these with one queue, and they accept
    only single messages.
    """
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system_topic(topic: str) -> bool:
    """Whether the topic belongs to the broker itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the consumer group belongs to brokers or tools. Apache RocketMQ adds some of these to every broker's
    table.
    """
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def topic_name_error(topic: str) -> str | None:
    """Return what is wrong with the name of a topic, in RocketMQ's words, or None if it is valid."""
    if not topic.strip():
        return "The specified topic is blank."
    if len(topic) > _max_length(topic):
        return "The specified topic is longer than topic max length."
    if not _ALLOWED.fullmatch(topic):
        return f"The specified topic contains illegal characters, allowing only ^{_ALLOWED.pattern}$"
    return None


def _max_length(topic: str) -> int:
    return MAX_DERIVED_TOPIC_LENGTH if is_derived_topic(topic) else MAX_TOPIC_LENGTH


def check_topic(topic: str) -> None:
    """Raise :class:`MessageError` if ``topic`` is not a string, empty, too long, or has a character outside
    ``%|a-zA-Z0-9_-``.
    """
    if not isinstance(topic, str):
        raise MessageError(f"the topic must be a string, not {topic!r}")
    if (fault := topic_name_error(topic)) is not None:
        shown = topic if len(topic) <= _SHOWN else f"{topic[:_SHOWN]}…"
        limit = _max_length(topic)
        detail = f" ({len(topic)} characters, at most {limit})" if len(topic) > limit else ""
        raise MessageError(f"topic {shown!r}: {fault}{detail}")


def check_group(group: str) -> None:
    """Raise :class:`MessageError` if ``group`` is not a string, empty, too long, or has a character outside
    ``%|a-zA-Z0-9_-``.
    """
    if not isinstance(group, str):
        raise MessageError(f"the group must be a string, not {group!r}")
    if not group.strip():
        raise MessageError("the group is blank")
    if len(group) > MAX_GROUP_LENGTH:
        raise MessageError(f"the group is longer than {MAX_GROUP_LENGTH} characters: {group[:40]}…")
    if not _ALLOWED.fullmatch(group):
        raise MessageError(f"the group {group!r} has characters outside %|a-zA-Z0-9_-")
