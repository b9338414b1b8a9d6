"""The name server's key-value store, kept in one JSON file (RocketMQ ``KVConfigManager``).

File layout, the reference's own, so that either program reads the other's::

    {"configTable": {"<namespace>": {"<key>": "<value>"}}}

A change is on disk before it is answered: the file is written beside the old one, synced and renamed over it, so that a
crash leaves the old or the new one. Namespace ``ORDER_TOPIC_CONFIG`` holds the fixed queue counts of ordered topics.
"""

from __future__ import annotations

import json
from pathlib import Path

from raptormq.config_file import write_file
from raptormq.errors import ConfigError

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


class KvConfig:
    """Strings by namespace and key; every change rewrites the file at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file; one that does not exist is an empty store.

        Raises:
            ConfigError: the file cannot be read or is not of the layout above.
        """
        try:
            text = self._path.read_text("utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path}: cannot be read: {error}") from error
        self._table = self._parse(text)

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of a namespace, ``None`` when it has never been written."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value.

        Raises:
            ConfigError: the file cannot be written; the value is then not set either.
        """
        self._replace(namespace, self._table.get(namespace, {}) | {key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it is there; errors as for :meth:`put`."""
        table = self._table.get(namespace, {})
        if key in table:
            self._replace(namespace, {other: value for other, value in table.items() if other != key})

    def _replace(self, namespace: str, table: dict[str, str]) -> None:
        changed = self._table | {namespace: table}
        write_file(self._path, json.dumps({"configTable": changed}, indent="\t", sort_keys=True))
        self._table = changed

    def _parse(self, text: str) -> dict[str, dict[str, str]]:
        try:
            tables = json.loads(text)["configTable"]
            return {str(name): {str(k): str(v) for k, v in table.items()} for name, table in tables.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self._path}: is not a key-value file: {error}") from error
