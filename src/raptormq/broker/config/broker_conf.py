"""Loads ``broker.conf`` for a start, with the warnings to print.

A name that is refused for a new store may be in use with an existing one, which must open after an upgrade.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from raptormq.broker.config.config import PEER_TRANSITION_KEY, BrokerConfig, StorageSettings, warnings_for
from raptormq.broker.config.names import refused_names
from raptormq.broker.config.old_queue_size import OLD_QUEUE_SIZE, QUEUE_FILE_BYTES, QUEUE_SIZE
from raptormq.config_file import clamp_warnings, read_properties
from raptormq.errors import ConfigError


def load_broker_config(path: Path | None, overrides: Mapping[str, str] | None = None) -> tuple[BrokerConfig, list[str]]:
    """Return the settings of ``broker.conf`` (or the defaults) with ``overrides``, and the warnings to print.

    Raises:
        ConfigError: the file cannot be read, a value is invalid, or a name is refused for a new store.
    """
    pairs = read_properties(path) if path is not None else {}
    config = BrokerConfig.from_pairs(pairs | dict(overrides or {}), path)
    return config, start_warnings(config)


def start_warnings(config: BrokerConfig) -> list[str]:
    """Return the warnings to print at the start.

    Raises:
        ConfigError: the store is new, and a name is refused for new stores.
    """
    refused = refused_names(config.names)
    if refused and not _is_used(config.storage):
        raise ConfigError(refused[0])
    warnings = [*warnings_for(config.given), *clamp_warnings(BrokerConfig, config.given)]
    warnings += [f"{complaint}; it is kept, because the store exists" for complaint in refused]
    ha, given = config.ha, config.given
    if ha.broker_id > 0 and not ha.is_slave and not config.replication.enabled:
        warnings.append(
            f"setting brokerId = {ha.broker_id} has no effect: without brokerRole=SLAVE this broker is the master of"
            f" {config.identity.broker_name}, with id 0"
        )
    if ha.silence_ms != ha.housekeeping_ms:
        warnings.append(
            f"setting haHousekeepingInterval = {ha.housekeeping_ms} counts as {ha.silence_ms}, because it must be above"
            f" haSendHeartbeatInterval = {ha.heartbeat_ms}"
        )
    if config.security.peers_in_transition:
        warnings.append(
            f"{PEER_TRANSITION_KEY} = true: requests of other brokers of the group are accepted without signature and"
            " encryption; remove it when all brokers have the new settings"
        )
    old = given.get(OLD_QUEUE_SIZE)
    if old is not None and QUEUE_SIZE not in given and QUEUE_FILE_BYTES(old) != config.storage.queue_file_bytes:
        warnings.append(
            f"setting {OLD_QUEUE_SIZE} has no effect, as in Apache RocketMQ, because no queue file has this size;"
            f" the key is {QUEUE_SIZE}"
        )
    return warnings


def _is_used(storage: StorageSettings) -> bool:
    """Return whether a broker has used the store."""
    root = Path(storage.root_dir)
    log = Path(storage.commit_log_dir) if storage.commit_log_dir else root / "commitlog"
    return (root / "config" / "topics.json").exists() or (log.is_dir() and bool(os.listdir(log)))
