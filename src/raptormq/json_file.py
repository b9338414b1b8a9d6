"""A table in a small JSON file that survives crashes: new contents are written to another file, synced, then renamed
(Apache RocketMQ ``ConfigManager``).

``NAME.bak`` is the previous version. The same rule holds for all tables:

=========================================  ============================================================================
State of ``NAME``                          Result of a start
=========================================  ============================================================================
missing, and the backup is missing         starts without the table; refused if the marker exists
missing or damaged                         uses the backup, with a warning
missing or damaged, and so is the backup   refused; the error contains the remedy
not readable (folder, permissions, disk)   refused, because the file may be intact
=========================================  ============================================================================

A file is damaged if it is empty, has only NUL bytes (as after a power cut) or white space, is not a JSON object, lacks
the key member of the table, has values that the decoder rejects, or has a wrong ``crc32``. Tables that recovery relies
on have this checksum: :func:`with_checksum`. Files written by RocketMQ (fastjson: numeric keys without quotes, a byte
order mark) are read too.

A table has a marker if its loss, or an older version of it, would grant access to unauthorized clients. The marker is a
separate file, written once after the first save of the table. The backup of such a table is written after the table,
with the same contents. A backup from before the marker existed is not used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from zlib import crc32

import orjson

from raptormq.errors import BodyError, StoreDamaged
from raptormq.files import DiskFiles, Files, read_file, replace_file, write_file
from raptormq.logs import get_logger
from raptormq.protocol.bodies.tolerant_json import loads_object

logger = get_logger(__name__)

T = TypeVar("T")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b"\0 \t\r\n"
_CHECKSUM = "crc32"


def dump_pretty(value: dict[str, Any]) -> bytes:
    """Encode ``value`` as indented JSON; integer keys become strings."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def with_checksum(value: dict[str, Any]) -> dict[str, Any]:
    """Return ``value`` with the member ``crc32``, which detects damaged values."""
    return {**value, _CHECKSUM: _checksum(value)}


def _checksum(value: dict[str, Any]) -> int:
    return crc32(orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS))


class JsonFile:
    """The file at ``path``; its folder must exist when something is saved.

    ``key`` is a required member of the object. ``without`` is the part of error messages that tells the operator what a
    start without the table means. ``marker`` is the path of the marker, None for a table that may be missing.
    """

    def __init__(
        self,
        path: str,
        files: Files | None = None,
        *,
        key: str | None = None,
        without: str = "its contents are lost then",
        marker: str | None = None,
    ) -> None:
        self.path = path
        self._backup = f"{path}.bak"
        self._files: Files = files or DiskFiles()
        self._key = key
        self._without = without
        self._marker = marker
        self._is_sound = True
        """False if the file is damaged and therefore must not replace the backup."""
        self.is_newest = False
        """Whether :meth:`load` returned the last saved version; the backup may be one change behind."""
        self._has_marker = marker is not None and self._files.exists(marker)
        self.wants_save = False
        """Whether :meth:`load` found that the marker of the table is missing, or that its backup differs."""

    def load(self, decode: Callable[[dict[str, Any]], T]) -> T | None:
        """Return the decoded object of the file or, failing that, of the backup; None if neither exists. ``decode``
        raises BodyError, or the errors of Python for values of the wrong type, if the object is not this table.

        Raises:
            StoreDamaged: the table exists or existed, and cannot be read. The message contains the remedy.
        """
        self.is_newest = False
        fault: str | None = None
        try:
            data = read_file(self._files, self.path)
            found = decode(self._parse(data))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unreadable(self.path, error) from error
        except (BodyError, LookupError, AttributeError, TypeError, ValueError) as error:
            fault = _reason(error)
        else:
            self.is_newest = self._is_sound = True
            self.wants_save = self._marker is not None and not (self._has_marker and self._is_backup(data))
            return found
        self._is_sound = fault is None
        return self._from_backup(decode, fault)

    def _from_backup(self, decode: Callable[[dict[str, Any]], T], fault: str | None) -> T | None:
        what = "is missing" if fault is None else f"is damaged ({fault})"
        if self._marker is not None and not self._has_marker and self._files.exists(self._backup):
            raise StoreDamaged(f"{self.path} {what}, and its backup may be older: {self._remedy()}")
        try:
            found = decode(self._parse(read_file(self._files, self._backup)))
        except FileNotFoundError:
            if fault is None and not self._has_marker:
                return None
            raise StoreDamaged(f"{self.path} {what}, and there is no backup: {self._remedy()}") from None
        except OSError as error:
            raise self._unreadable(self._backup, error) from error
        except (BodyError, LookupError, AttributeError, TypeError, ValueError) as error:
            both = f"{self.path} {what}, and its backup is damaged ({_reason(error)})"
            raise StoreDamaged(f"{both}: {self._remedy()}") from error
        logger.warning("%s %s: using its backup %s, which may be older", self.path, what, self._backup)
        return found

    def save(self, value: dict[str, Any]) -> None:
        """Replace the contents; durable on return. Blocks on the disk.

        Raises:
            OSError: the save failed. :meth:`load` returns the old or the new contents.
        """
        self.save_bytes(dump_pretty(value))

    def save_bytes(self, data: bytes) -> None:
        """Like :meth:`save` for the encoded table; thread-safe."""
        files = self._files
        if self._marker is not None:
            self._save_twice(self._marker, data)
            return
        new = f"{self.path}.new"
        write_file(files, new, data)
        if self._is_sound and files.exists(self.path):
            files.replace(self.path, self._backup)
        files.replace(new, self.path)
        self._is_sound = True
        files.sync_directory(_folder(self.path))

    def _save_twice(self, marker: str, data: bytes) -> None:
        replace_file(self._files, self.path, data)
        replace_file(self._files, self._backup, data)
        if not self._has_marker:
            text = f"{self.path} existed: while this marker exists, its loss is an error\n"
            replace_file(self._files, marker, text.encode())
            self._has_marker = True

    def _is_backup(self, data: bytes) -> bool:
        try:
            return read_file(self._files, self._backup) == data
        except OSError:
            return False

    def _parse(self, data: bytes) -> dict[str, Any]:
        if not data:
            raise BodyError("it is empty")
        text = data.removeprefix(_BYTE_ORDER_MARK)
        if not text.strip(_BLANK):
            raise BodyError(f"its {len(data)} bytes are NUL or white space")
        value = loads_object(text)
        checksum = value.pop(_CHECKSUM, None)
        if checksum is not None and checksum != _checksum(value):
            raise BodyError(f"its {_CHECKSUM} does not fit")
        if self._key is not None and value.get(self._key) is None:
            raise BodyError(f"it has no {self._key}")
        return value

    def _unreadable(self, path: str, error: OSError) -> StoreDamaged:
        reason = error.strerror or error
        return StoreDamaged(f"{path} cannot be read: {reason}; make it readable, or {self._remedy()}")

    def _remedy(self) -> str:
        names = [self.path, self._backup] if self._marker is None else [self.path, self._backup, self._marker]
        removed = f"{', '.join(names[:-1])} and {names[-1]}"
        return f"replace {self.path} with an undamaged copy, or remove {removed}; {self._without}"


class VersionedFile:
    """Writes numbered versions of a table to ``file`` and ignores a version that is not newer than the file. This is
    necessary because a save continues in its thread after its caller is cancelled, while the next save may start.
    """

    def __init__(self, file: JsonFile) -> None:
        self._file = file
        self._writing = threading.Lock()
        self.version = 0
        """The newest version that was written."""

    def save(self, version: int, data: bytes) -> None:
        """Write ``data`` unless this or a newer version has been written. Waits for a save in progress; thread-safe.

        Raises:
            OSError: the save failed. ``version`` is unchanged, and the file has its old or its new contents.
        """
        with self._writing:
            if version > self.version:
                self._file.save_bytes(data)
                self.version = version


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _reason(error: Exception) -> str:
    """Return the error as one short printable line."""
    text = str(error) if isinstance(error, BodyError) else f"{type(error).__name__}: {error}"
    return ascii(text)[1:-1][:200]
