"""The current settings, which requests may change while the name server runs.

An update is validated like a file, written to the file named by ``configStorePath``, and then takes effect. The
listening address and the file paths take effect at the next start. Requests cannot change access control: whoever may
change settings could make himself a super user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from raptormq.config_file import (
    dump_settings,
    first_keys,
    format_properties,
    load_settings,
    read_properties,
    write_file,
)
from raptormq.namesrv.config import NameServerConfig
from raptormq.security.settings import ACCESS_KEYS
from raptormq.transport.tls import TLS_KEYS

_NEVER = ACCESS_KEYS | TLS_KEYS


class RunningConfig:
    """Holds the current :class:`~raptormq.namesrv.config.NameServerConfig`."""

    def __init__(self, config: NameServerConfig) -> None:
        self.current = config
        self._given = dict(config.given)
        self._first_keys = first_keys(NameServerConfig)

    def forbidden(self, pairs: Mapping[str, str]) -> list[str]:
        """Return the keys that requests must not change."""
        black_list = _NEVER.union(self.current.config_black_list.split(";"))
        return [key for key in pairs if key in black_list]

    def update(self, pairs: Mapping[str, str]) -> None:
        """Apply ``pairs`` on top of the current settings.

        Raises:
            ConfigError: a value is invalid or the file cannot be written; nothing was changed.
        """
        changes = {self._first_keys.get(key, key): value for key, value in pairs.items()}
        changed = load_settings(NameServerConfig, self._given | changes)
        path = Path(self.current.config_store_path)
        stored = read_properties(path) if path.exists() else {}
        write_file(path, format_properties(stored | changes))
        self._given |= changes
        self.current = replace(changed, tls=self.current.tls)

    def text(self) -> str:
        """Return all settings as ``key=value`` lines."""
        return format_properties(dump_settings(self.current))
