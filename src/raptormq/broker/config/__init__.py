"""Settings of a broker with RocketMQ's keys: parsing, dynamic changes, and keys without effect."""

from __future__ import annotations

from raptormq.broker.config.broker_conf import load_broker_config, start_warnings
from raptormq.broker.config.config import (
    MAX_ANSWER_BYTES,
    QUEUE_LOCK_MS,
    BrokerConfig,
    Identity,
    MetadataSettings,
    Policies,
    PopOrderSettings,
    PullSettings,
    StagingSettings,
    StorageSettings,
    TimerSettings,
    TransactionSettings,
    warnings_for,
)
from raptormq.broker.config.dynamic import RunningConfig
from raptormq.broker.config.ha import HaSettings
from raptormq.broker.config.ignored_keys import IGNORED_KEYS
from raptormq.broker.config.replication import ReplicationSettings, broker_id_of
from raptormq.broker.config.store import apply_retention, max_body_bytes, store_config

__all__ = [
    "IGNORED_KEYS",
    "MAX_ANSWER_BYTES",
    "QUEUE_LOCK_MS",
    "BrokerConfig",
    "HaSettings",
    "Identity",
    "MetadataSettings",
    "Policies",
    "PopOrderSettings",
    "PullSettings",
    "ReplicationSettings",
    "RunningConfig",
    "StagingSettings",
    "StorageSettings",
    "TimerSettings",
    "TransactionSettings",
    "apply_retention",
    "broker_id_of",
    "load_broker_config",
    "max_body_bytes",
    "start_warnings",
    "store_config",
    "warnings_for",
]
