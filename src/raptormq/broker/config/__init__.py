"""Settings of a broker under RocketMQ's keys: parsing, changes while it runs, keys without effect here."""

from __future__ import annotations

from raptormq.broker.config.config import (
    MAX_ANSWER_BYTES,
    QUEUE_LOCK_MS,
    BrokerConfig,
    Identity,
    Policies,
    Pulling,
    Timers,
    Transactions,
    load_broker_config,
    start_warnings,
    warnings_for,
)
from raptormq.broker.config.dynamic import RunningConfig
from raptormq.broker.config.ignored_keys import FOREIGN_KEYS
from raptormq.broker.config.store import keep, max_body_bytes, store_config

__all__ = [
    "FOREIGN_KEYS",
    "MAX_ANSWER_BYTES",
    "QUEUE_LOCK_MS",
    "BrokerConfig",
    "Identity",
    "Policies",
    "Pulling",
    "RunningConfig",
    "Timers",
    "Transactions",
    "keep",
    "load_broker_config",
    "max_body_bytes",
    "start_warnings",
    "store_config",
    "warnings_for",
]
