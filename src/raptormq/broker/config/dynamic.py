"""Dynamic changes of the settings (``Configuration.update``).

A request is atomic. All pairs are validated and written to the settings file. Then live settings take effect. Other
settings take effect at the next start. The other lines of the file are unchanged. Without a settings file, changes are
lost when the broker stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from raptormq.broker.config.config import PEER_TRANSITION_KEY, BrokerConfig, warnings_for
from raptormq.broker.config.ignored_keys import IGNORED_KEYS
from raptormq.broker.config.names import refused_names
from raptormq.config_file import change_live, changed_properties, dump_settings, first_keys, read_text, write_file
from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.security.settings import ACCESS_KEYS
from raptormq.transport.tls import TLS_KEYS

logger = get_logger(__name__)

_NEVER = (
    frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList", PEER_TRANSITION_KEY}) | ACCESS_KEYS | TLS_KEYS
)
"""Keys that no request may change. With the keys of access control, a user who may change settings could become a super
user.
"""


class RunningConfig:
    """Changes the groups of settings of ``config`` in place."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._given = dict(config.given)
        self._first_keys = first_keys(BrokerConfig)
        self._listeners: list[Callable[[set[str]], None]] = []

    def listen(self, listener: Callable[[set[str]], None]) -> None:
        """Call ``listener`` with the changed keys after each change."""
        self._listeners.append(listener)

    def forbidden(self, pairs: Mapping[str, str]) -> list[str]:
        """Return the keys that no request may change."""
        black_list = _NEVER.union(self._config.security.config_black_list.split(";"))
        return [key for key in pairs if key in black_list]

    def shown(self) -> dict[str, str]:
        """Return the current settings, and the given RocketMQ keys without effect."""
        idle = {key: value for key, value in self._given.items() if key in IGNORED_KEYS}
        return dump_settings(self._config) | idle

    def update(self, pairs: Mapping[str, str]) -> set[str]:
        """Apply ``pairs``. Return the keys that take effect at the next start.

        Raises:
            ConfigError: a key is unknown, a value is invalid, or the file cannot be written. No setting has changed.
        """
        if unknown := warnings_for(pairs):
            raise ConfigError(unknown[0].replace(" is ignored", ""))
        changes = {self._first_keys.get(key, key): value for key, value in pairs.items()}
        wanted = BrokerConfig.from_pairs(self._given | changes)
        if refused := refused_names({key: name for key, name in wanted.names.items() if key in changes}):
            raise ConfigError(refused[0])
        if self._config.path is not None:
            _write(self._config.path.resolve(), changes)
        self._given |= changes
        changed, waiting = change_live(self._config, wanted)
        waiting &= changes.keys()
        logger.info(
            "settings changed by request: %s; effective at the next start: %s", sorted(changed), sorted(waiting)
        )
        for listener in self._listeners:
            listener(changed)
        return waiting


def _write(path: Path, changes: Mapping[str, str]) -> None:
    write_file(path, changed_properties(read_text(path) if path.exists() else "", changes))
