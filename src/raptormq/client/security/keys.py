"""Sources of the keys for encrypted messages: a file, the environment, or a folder such as a mounted Secret.

Every source has named keys, one of which is the current key for encryption; all can decrypt. Keys have 16, 24 or 32
bytes, encoded in base64. Sources are read again every few seconds, and immediately if a key is missing, so keys can be
rotated without a restart: distribute the new key, make it the current key, and remove the old key when no stored
message needs it::

    file, environment     `2026-11 = 3q2+7w...`, one key per line (or comma); the first one is current
    folder                a file per key, named like the key; the file `current` has the name of the current one
                          (kubectl create secret generic keys --from-literal=current=k1 --from-literal=k1=3q2+7w...)

See also: `message.encryption` uses them; `raptormq.protocol.encryption` describes the layout of encrypted bodies.
"""

from __future__ import annotations

import abc
import base64
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from raptormq.client.settings import check_setting
from raptormq.errors import ConfigError, KeyMissing
from raptormq.logs import get_logger
from raptormq.protocol.encryption import KEY_BYTES, MAX_KEY_ID_BYTES

log = get_logger(__name__)

KEYS_VARIABLE = "RAPTORMQ_ENCRYPTION_KEYS"
FOLDER_VARIABLE = "RAPTORMQ_ENCRYPTION_KEY_FOLDER"
_CURRENT = "current"
_REFRESH_S = 5.0
_KEY_CHARACTERS = 22
"""Length of the shortest key in base64, without padding."""


@runtime_checkable
class EncryptionKeys(Protocol):
    """Interface of key sources; implement it for your own key service. Methods are called on the event loop and must
    not block for long."""

    def current(self) -> tuple[str, bytes]:
        """Return name (printable, 1 to 255 bytes) and bytes of the current key.

        Raises:
            ConfigError: there is no current key.
        """

    def key(self, key_id: str) -> bytes:
        """Return the key with the name `key_id`.

        Raises:
            KeyMissing: there is no such key.
        """


class _Loaded(NamedTuple):
    current: str
    keys: dict[str, bytes]

    def __repr__(self) -> str:
        return f"keys {', '.join(map(repr, self.keys))} (not shown)"


class _ReadKeys(abc.ABC):
    """Keys that are periodically read from a source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._loaded = self._read()
        self._read_at = time.monotonic()

    def current(self) -> tuple[str, bytes]:
        """Return name and bytes of the key to encrypt with."""
        if self._is_old():
            self._read_again()
        return self._loaded.current, self._loaded.keys[self._loaded.current]

    def key(self, key_id: str) -> bytes:
        """Return a key; raises `KeyMissing` when there is no such key."""
        # A cached key may be out of date; clients that only decrypt do not call `current`.
        if key_id not in self._loaded.keys or self._is_old():
            self._read_again()
        try:
            return self._loaded.keys[key_id]
        except KeyError:
            known = ", ".join(sorted(self._loaded.keys))
            raise KeyMissing(
                f"{self._source} has no key {key_id!r}, which a message is encrypted with; it has {known}"
            ) from None

    def _is_old(self) -> bool:
        return time.monotonic() - self._read_at > _REFRESH_S

    def _read_again(self) -> None:
        self._read_at = time.monotonic()
        try:
            self._loaded = self._read()
        except ConfigError as error:
            log.warning("cannot reload the keys; the cached keys stay in use: %s", error)

    @abc.abstractmethod
    def _read(self) -> _Loaded:
        """Return the current contents of the source; raises ConfigError."""


class KeyFile(_ReadKeys):
    """Keys from a file.

    Args:
        path: the file, in the format of this module; `#` starts a comment.

    Raises:
        ConfigError: the file cannot be read or has no keys, or the path is invalid.
    """

    def __init__(self, path: str | Path) -> None:
        check_setting("path", path, str | os.PathLike)
        self._path = Path(path)
        super().__init__(str(path))

    def _read(self) -> _Loaded:
        return _parse(_text(self._path), self._source)


class EnvironmentKeys(_ReadKeys):
    """Keys from an environment variable.

    Raises:
        ConfigError: the variable is not set or has no keys.
    """

    def __init__(self, variable: str = KEYS_VARIABLE) -> None:
        check_setting("variable", variable, str)
        self._variable = variable
        super().__init__(f"environment variable {variable}")

    def _read(self) -> _Loaded:
        return _parse(os.environ.get(self._variable, ""), self._source)


class KeyFolder(_ReadKeys):
    """Keys from a folder, such as a mounted Kubernetes Secret.

    Raises:
        ConfigError: a file cannot be read, there is no key, the current key is missing, or the path is invalid.
    """

    def __init__(self, path: str | Path) -> None:
        check_setting("path", path, str | os.PathLike)
        self._path = Path(path)
        super().__init__(str(path))

    def _read(self) -> _Loaded:
        try:
            names = sorted(os.listdir(self._path))
        except OSError as error:
            raise ConfigError(f"cannot read the key folder {self._path}: {error.strerror}") from None
        # Kubernetes updates a Secret by replacing a hidden folder, to which the visible names are links.
        files = {name: _text(self._path / name).strip() for name in names if not name.startswith(".")}
        current = files.pop(_CURRENT, "")
        keys = {name: _key(name, text, self._source) for name, text in files.items()}
        if not keys:
            raise ConfigError(
                f"{self._path} has no key: expected one file for each key, with its name and 16, 24 or 32 "
                "bytes in base64"
            )
        if not current:
            known = ", ".join(keys)
            raise ConfigError(
                f"{self._path} has no file {_CURRENT!r} with the name of the key to encrypt with: {known}"
            )
        if current not in keys:
            raise ConfigError(f"{self._path} has no key {_shown(current)}, which its file {_CURRENT!r} names")
        return _Loaded(current, keys)


class UnreadKeys:
    """Keys from the environment that could not be read. Reading is repeated whenever a key is needed, so clients
    without encryption are not affected.
    """

    def __init__(self, read: Callable[[], EncryptionKeys]) -> None:
        self._read = read
        self._keys: EncryptionKeys | None = None

    def current(self) -> tuple[str, bytes]:
        """Return name and bytes of the key to encrypt with; raises `ConfigError` while the keys cannot be read."""
        return self._found().current()

    def key(self, key_id: str) -> bytes:
        """Return a key; raises `KeyMissing` when there is no such key, or while the keys cannot be read."""
        try:
            keys = self._found()
        except ConfigError as error:
            raise KeyMissing(f"a message is encrypted with the key {key_id!r}: {error}") from error
        return keys.key(key_id)

    def _found(self) -> EncryptionKeys:
        if self._keys is None:
            self._keys = self._read()
        return self._keys


def keys_from_environment() -> EncryptionKeys | None:
    """Return the keys of RAPTORMQ_ENCRYPTION_KEYS, or else of the folder RAPTORMQ_ENCRYPTION_KEY_FOLDER, or else None.
    Unreadable keys raise an error when they are needed.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    read: Callable[[], EncryptionKeys]
    if os.environ.get(KEYS_VARIABLE):
        read = EnvironmentKeys
    elif folder:
        read = partial(KeyFolder, folder)
    else:
        return None
    try:
        return read()
    except ConfigError:
        return UnreadKeys(read)


def require_keys(keys: EncryptionKeys | None) -> None:
    """Check that keys are available for encryption.

    Raises:
        ConfigError: there are no keys, or those of the environment cannot be read.
    """
    if keys is None:
        raise ConfigError(f"encrypt needs keys: set ClientConfig.keys or {KEYS_VARIABLE}")
    if isinstance(keys, UnreadKeys):
        keys.current()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read the key file {path}: {error}") from None


def _parse(text: str, source: str) -> _Loaded:
    keys: dict[str, bytes] = {}
    for line in re.split(r"[\n,]", re.sub(r"#[^\n]*", "", text)):
        if line.strip():
            name, value = (part.strip() for part in line.partition("=")[::2])
            if name in keys:
                raise ConfigError(f"{source} has two keys with the name {_shown(name)}")
            keys[name] = _key(name, value, source)
    if not keys:
        raise ConfigError(f"{source} has no key: expected NAME = BASE64")
    return _Loaded(next(iter(keys)), keys)


def is_key_name(name: object) -> bool:
    """Return whether a key name can be stored in an encrypted body and in a property."""
    # Check for printable characters first, because text that UTF-8 cannot encode is not printable.
    return isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= MAX_KEY_ID_BYTES


def _key(name: str, text: str, source: str) -> bytes:
    if not is_key_name(name):
        raise ConfigError(f"{source}: {_shown(name)} is not a valid key name")
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # not base64, or not even ASCII
        key = b""
    if len(key) not in KEY_BYTES:
        raise ConfigError(f"{source}: key {_shown(name)} must have 16, 24 or 32 bytes in base64")
    return key


def _shown(name: str) -> str:
    """Return a key name for an error message. A name as long as a key is hidden, because it may be a key without a
    name."""
    return (
        repr(name) if len(name) < _KEY_CHARACTERS else f"of {len(name)} characters (not shown, it may be a key itself)"
    )
