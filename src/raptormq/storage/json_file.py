"""A small JSON file that survives crashes: new contents under another name, made durable, then renamed (Apache
RocketMQ ``ConfigManager``).

``NAME.bak`` is the version before; it is read when ``NAME`` is missing or not JSON. Files written by RocketMQ
(fastjson: numeric keys without quotes) are read as well.
"""

from __future__ import annotations

import threading
from typing import Any

import orjson

from raptormq.errors import BodyError, StoreDamaged
from raptormq.logs import get_logger
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.storage.filesystem import FileSystem, read_file, write_file
from raptormq.storage.real_filesystem import RealFileSystem

logger = get_logger(__name__)


def dump_pretty(value: dict[str, Any]) -> bytes:
    """Return ``value`` as the text of a file; integer keys become strings."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


class JsonFile:
    """The file at ``path``; its folder has to exist when something is saved."""

    def __init__(self, path: str, filesystem: FileSystem | None = None) -> None:
        self.path = path
        self._filesystem: FileSystem = filesystem or RealFileSystem()
        self._is_sound = True
        """False when the file was found damaged or empty: it must not take the place of the backup."""
        self.is_newest = False
        """Whether :meth:`load` returned what was saved last; the backup may be a change behind."""

    def load(self) -> dict[str, Any] | None:
        """Return the object in the file or, failing that, in the backup; None when there is neither.

        Raises:
            StoreDamaged: there is something, but neither is a JSON object.
        """
        damaged: BodyError | None = None
        for path in (self.path, f"{self.path}.bak"):
            if not self._filesystem.exists(path):
                continue
            try:
                data = read_file(self._filesystem, path)
                if data:
                    contents = loads_object(data)
                    self.is_newest = path == self.path
                    return contents
            except BodyError as error:
                damaged = damaged or error
                logger.warning("%s is damaged: %s", path, error)
            if path == self.path:
                self._is_sound = False
        if damaged is not None:
            remedy = "put a sound copy in its place, or remove both to start without what it said"
            raise StoreDamaged(f"neither {self.path} nor its backup can be read: {damaged}; {remedy}") from damaged
        return None

    def save(self, value: dict[str, Any]) -> None:
        """Replace the contents; durable on return. Waits for the disk.

        Raises:
            OSError: the old contents are still there.
        """
        self.save_bytes(dump_pretty(value))

    def save_bytes(self, data: bytes) -> None:
        """Like :meth:`save`, for a text made by :func:`dump_pretty`; for any thread."""
        filesystem = self._filesystem
        new = f"{self.path}.new"
        write_file(filesystem, new, data)
        if self._is_sound and filesystem.exists(self.path):
            filesystem.replace(self.path, f"{self.path}.bak")
        filesystem.replace(new, self.path)
        self._is_sound = True
        filesystem.sync_directory(self.path.rpartition("/")[0])


class VersionedFile:
    """Keeps the newest version in ``file``: a save goes on in its thread when who waited for it is cancelled, and the
    next one may begin meanwhile.
    """

    def __init__(self, file: JsonFile) -> None:
        self._file = file
        self._writing = threading.Lock()
        self.version = 0
        """The newest one that the file has had."""

    def save(self, version: int, data: bytes) -> None:
        """Replace the contents by a newer version of them, after any save that is under way; for any thread.

        Raises:
            OSError: the old contents are still there.
        """
        with self._writing:
            if version > self.version:
                self._file.save_bytes(data)
                self.version = version
