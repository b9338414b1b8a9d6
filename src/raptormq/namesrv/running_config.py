"""Changes of the settings at run time.

A change is validated, written to the file ``configStorePath``, and then applied. The listening address and the file
paths take effect at the next start. Requests cannot change access control: a user who may change settings could become
a super user.
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
    """The current :class:`~raptormq.namesrv.config.NameServerConfig`, which requests may replace."""

    def __init__(self, config: NameServerConfig) -> None:
        self.current = config
        self._given = dict(config.given)
        self._first_keys = first_keys(NameServerConfig)

    def forbidden(self, pairs: Mapping[str, str]) -> list[str]:
        """Return the keys of ``pairs`` that no request may change."""
        black_list = _NEVER.union(self.current.config_black_list.split(";"))
        return [key for key in pairs if key in black_list]

    def update(self, pairs: Mapping[str, str]) -> None:
        """Write ``pairs`` to the file and apply them.

        Raises:
            ConfigError: a value is invalid, or the file cannot be written. No setting has changed.
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
