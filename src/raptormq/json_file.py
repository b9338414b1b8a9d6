"""A table in a small JSON file that survives crashes: new contents under another name, made durable, then renamed
(Apache RocketMQ ``ConfigManager``).

``NAME.bak`` is the version before. One rule for all tables, whoever keeps them:

=========================================  ============================================================================
``NAME`` is                                what a start does
=========================================  ============================================================================
not there, nor its backup                  begins without, unless the marker says that there was one: refused
not there, or damaged                      takes the backup, with a warning
not there, or damaged, the backup, too     is refused; the error says what to do
not readable: a folder, rights, the disk   is refused likewise, since it may be sound
=========================================  ============================================================================

Damaged is what is empty (or has only NUL bytes, as after a power cut, or white space), is not JSON or not an object,
lacks the member that makes it this table, has something in it that its owner cannot read, or a member ``crc32`` that
does not fit. Tables that a recovery believes have that: :func:`sealed`. Files written by RocketMQ
(fastjson: numeric keys without quotes, a byte order mark) are read as well.

A table with a marker is one without which, or with an older version of which, a start would let in who must not come
in. The marker is a file of its own, written once when the table was saved for the first time, and the backup of such a
table is written after it with the same contents. One of before there was a marker is not used.
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
    """Return ``value`` as the text of a file; integer keys become strings."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def with_checksum(value: dict[str, Any]) -> dict[str, Any]:
    """Return ``value`` with one member more, by which a start sees that a digit or a name has been damaged."""
    return {**value, _CHECKSUM: _checksum(value)}


def _checksum(value: dict[str, Any]) -> int:
    return crc32(orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS))


class JsonFile:
    """The file at ``path``; its folder has to exist when something is saved.

    ``key`` is the member of the object that has to be there. ``without`` says, for who has to decide, what a start
    without the table means. ``marker`` is the path of the marker, None for a table that may be missing.
    """

    def __init__(
        self,
        path: str,
        files: Files | None = None,
        *,
        key: str | None = None,
        without: str = "what it said is lost then",
        marker: str | None = None,
    ) -> None:
        self.path = path
        self._backup = f"{path}.bak"
        self._files: Files = files or DiskFiles()
        self._key = key
        self._without = without
        self._marker = marker
        self._is_sound = True
        """False when the file was found damaged: it must not take the place of the backup."""
        self.is_newest = False
        """Whether :meth:`load` returned what was saved last; the backup may be a change behind."""
        self._has_marker = marker is not None and self._files.exists(marker)
        self.wants_save = False
        """Whether :meth:`load` has found a table with a marker that lacks it, or has another version as its backup."""

    def load(self, decode: Callable[[dict[str, Any]], T]) -> T | None:
        """Return what ``decode`` makes of the object in the file or, failing that, in the backup; None when there is
        neither. ``decode`` refuses an object that is not this table: BodyError, or what Python raises of itself for
        values of the wrong type.

        Raises:
            StoreDamaged: there is something, or there was, and it cannot be read; the text says what to do.
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
        logger.warning("%s %s: its backup %s is read, which may be older", self.path, what, self._backup)
        return found

    def save(self, value: dict[str, Any]) -> None:
        """Replace the contents; durable on return. Waits for the disk.

        Raises:
            OSError: the old contents are still there.
        """
        self.save_bytes(dump_pretty(value))

    def save_bytes(self, data: bytes) -> None:
        """Like :meth:`save`, for a text of the table; for any thread."""
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
            text = f"{self.path} was written once; without this file a start does not miss it\n"
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


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _reason(error: Exception) -> str:
    """A fault in one short line: contents may be long, and of any kind."""
    text = str(error) if isinstance(error, BodyError) else f"{type(error).__name__}: {error}"
    return ascii(text)[1:-1][:200]
