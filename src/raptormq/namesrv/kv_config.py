"""Key-value store of the name server in a JSON file (``KVConfigManager``).

The format of the file is that of RocketMQ::

    {"configTable": {"<namespace>": {"<key>": "<value>"}}}

A change is on disk before the response. A damaged file is replaced by its backup (:mod:`raptormq.json_file`). The
namespace ``ORDER_TOPIC_CONFIG`` contains the fixed queue counts of ordered topics.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from raptormq.errors import ConfigError, StoreDamaged
from raptormq.files import DiskFiles, make_durable_folder
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.members import object_at

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


class KvConfig:
    """Strings by namespace and key. Every change rewrites the file at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path = path.absolute()
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None  # mode of an existing file, if any
        self._files = DiskFiles(mode)
        without = "without it ordered topics have no fixed queues"
        self._file = JsonFile(str(path), self._files, key="configTable", without=without)
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file. If it does not exist, the store is empty.

        Raises:
            ConfigError: the file and its backup cannot be read or have another format.
        """
        try:
            self._table = self._file.load(_decode) or {}
        except StoreDamaged as error:
            raise ConfigError(str(error)) from error

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, or None if it does not exist."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of a namespace, or None if it has never been written."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value.

        Raises:
            ConfigError: the file cannot be written. The value has not changed.
        """
        self._replace(namespace, self._table.get(namespace, {}) | {key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value if it exists.

        Raises:
            ConfigError: the file cannot be written. The value still exists.
        """
        table = self._table.get(namespace, {})
        if key in table:
            self._replace(namespace, {other: value for other, value in table.items() if other != key})

    def _replace(self, namespace: str, table: dict[str, str]) -> None:
        changed = self._table | {namespace: table}
        try:
            make_durable_folder(self._files, str(self._path.parent))
            self._file.save({"configTable": changed})
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error}") from error
        self._table = changed


def _decode(value: dict[str, Any]) -> dict[str, dict[str, str]]:
    tables = object_at(value, "configTable")
    return {name: {key: str(text) for key, text in object_at(tables, name).items()} for name in tables}
