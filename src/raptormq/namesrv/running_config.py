"""The settings in force, which requests may change while the name server runs.

A change is checked like a file is, kept in the file named by ``configStorePath`` and then takes effect; where the
server listens and stores changes with the next start only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from raptormq.config_file import dump_settings, format_properties, load_settings, read_properties, write_file
from raptormq.namesrv.config import NameServerConfig
from raptormq.transport.tls_settings import TLS_KEYS


class RunningConfig:
    """Holds the current :class:`~raptormq.namesrv.config.NameServerConfig`."""

    def __init__(self, config: NameServerConfig) -> None:
        self.current = config

    def forbidden(self, pairs: Mapping[str, str]) -> list[str]:
        """Return the keys that no request may change."""
        black_list = self.current.config_black_list.split(";")
        return [key for key in pairs if key in black_list or key in TLS_KEYS]

    def update(self, pairs: Mapping[str, str]) -> None:
        """Apply ``pairs`` on top of what is in force.

        Raises:
            ConfigError: a value cannot be used or the file cannot be written; nothing was changed.
        """
        changed = replace(
            load_settings(NameServerConfig, dump_settings(self.current) | dict(pairs)), tls=self.current.tls
        )
        path = Path(self.current.config_store_path)
        stored = read_properties(path) if path.exists() else {}
        write_file(path, format_properties(stored | dict(pairs)))
        self.current = replace(changed, tls=self.current.tls)

    def text(self) -> str:
        """Return all settings as ``key=value`` lines."""
        return format_properties(dump_settings(self.current))
