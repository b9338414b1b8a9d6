"""Where the keys of encrypted messages come from: a file, the environment, or a folder such as a mounted Secret.

Every source names the keys it holds and the one to encrypt with; all can be used to decrypt. Keys are texts in base64,
of 16, 24 or 32 bytes. Files are read again every few seconds, and at once when a key is missing, so keys are rotated
without a restart: give the new key to everybody, then make it the current one, drop the old one when no message needs
it.

    file, environment     `2026-11 = 3q2+7w...`, one key per line (or comma); the first one is current
    folder                a file per key, named as the key; the file `current` holds the name of the current one
                          (kubectl create secret generic keys --from-literal=current=k1 --from-literal=k1=3q2+7w...)

Neighbour: `message.encryption` uses them; the layout of encrypted bodies is in `raptormq.protocol.encryption`.
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
"""The shortest key in base64, without the signs that fill it up."""


@runtime_checkable
class EncryptionKeys(Protocol):
    """A source of keys; implement it for a key service of your own. Called on the event loop: must not block long."""

    def current(self) -> tuple[str, bytes]:
        """Return name (printable, 1 to 255 bytes) and bytes of the key to encrypt with.

        Raises:
            ConfigError: there is none.
        """

    def key(self, key_id: str) -> bytes:
        """Return a key.

        Raises:
            KeyMissing: it is not there.
        """


class _Loaded(NamedTuple):
    current: str
    keys: dict[str, bytes]

    def __repr__(self) -> str:
        return f"keys {', '.join(map(repr, self.keys))} (not shown)"


class _ReadKeys(abc.ABC):
    """Keys that are read from somewhere, again and again."""

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
        """Return a key; raises `KeyMissing` when it is not there."""
        # One that is there may be the wrong one, and who only decrypts calls nothing else.
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
            log.warning("the keys that are known stay: %s", error)

    @abc.abstractmethod
    def _read(self) -> _Loaded:
        """Return what the source says now; raises ConfigError."""


class KeyFile(_ReadKeys):
    """Keys of a file.

    Args:
        path: see the top of this module; `#` begins a comment.

    Raises:
        ConfigError: the file cannot be read, or holds no keys, or the path is none.
    """

    def __init__(self, path: str | Path) -> None:
        check_setting("path", path, str | os.PathLike)
        self._path = Path(path)
        super().__init__(str(path))

    def _read(self) -> _Loaded:
        return _parse(_text(self._path), self._source)


class EnvironmentKeys(_ReadKeys):
    """Keys of an environment variable.

    Raises:
        ConfigError: it is not set, or holds no keys.
    """

    def __init__(self, variable: str = KEYS_VARIABLE) -> None:
        check_setting("variable", variable, str)
        self._variable = variable
        super().__init__(f"environment variable {variable}")

    def _read(self) -> _Loaded:
        return _parse(os.environ.get(self._variable, ""), self._source)


class KeyFolder(_ReadKeys):
    """Keys of a folder, as Kubernetes mounts a Secret.

    Raises:
        ConfigError: a file cannot be read, there is no key, the current one is not there, or the path is none.
    """

    def __init__(self, path: str | Path) -> None:
        check_setting("path", path, str | os.PathLike)
        self._path = Path(path)
        super().__init__(str(path))

    def _read(self) -> _Loaded:
        try:
            names = sorted(os.listdir(self._path))
        except OSError as error:
            raise ConfigError(f"the folder of keys {self._path} cannot be read: {error.strerror}") from None
        # Kubernetes swaps a hidden folder that the visible names link to.
        files = {name: _text(self._path / name).strip() for name in names if not name.startswith(".")}
        current = files.pop(_CURRENT, "")
        keys = {name: _key(name, text, self._source) for name, text in files.items()}
        if not keys:
            raise ConfigError(
                f"{self._path} holds no key; one is a file with 16, 24 or 32 bytes in base64, named as it"
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
    """Keys of the environment that could not be read: who encrypts and decrypts nothing need not hear of it. They are
    tried again each time when something needs them.
    """

    def __init__(self, read: Callable[[], EncryptionKeys]) -> None:
        self._read = read
        self._keys: EncryptionKeys | None = None

    def current(self) -> tuple[str, bytes]:
        """Return name and bytes of the key to encrypt with; raises `ConfigError` while they cannot be read."""
        return self._found().current()

    def key(self, key_id: str) -> bytes:
        """Return a key; raises `KeyMissing` when it is not there, or while they cannot be read."""
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
    """Return the keys that RAPTORMQ_ENCRYPTION_KEYS holds, or the folder RAPTORMQ_ENCRYPTION_KEY_FOLDER; else `None`.
    Keys that cannot be used are an error for who needs them.
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
    """Tell who is going to encrypt at once what is wrong.

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
        raise ConfigError(f"the file of keys {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the file of keys {path} cannot be read: {error}") from None


def _parse(text: str, source: str) -> _Loaded:
    keys: dict[str, bytes] = {}
    for line in re.split(r"[\n,]", re.sub(r"#[^\n]*", "", text)):
        if line.strip():
            name, value = (part.strip() for part in line.partition("=")[::2])
            if name in keys:
                raise ConfigError(
                    f"{source} has two keys with the name {_shown(name)}; nobody could say which is meant"
                )
            keys[name] = _key(name, value, source)
    if not keys:
        raise ConfigError(f"{source} holds no key; one is NAME = BASE64")
    return _Loaded(next(iter(keys)), keys)


def is_key_name(name: object) -> bool:
    """Whether an encrypted body, and a property, can name a key so."""
    # Printable first: what UTF-8 cannot hold is not.
    return isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= MAX_KEY_ID_BYTES


def _key(name: str, text: str, source: str) -> bytes:
    if not is_key_name(name):
        raise ConfigError(f"{source}: {_shown(name)} is no name of a key")
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # no base64, or not even ASCII
        key = b""
    if len(key) not in KEY_BYTES:
        raise ConfigError(f"{source}: key {_shown(name)} is not 16, 24 or 32 bytes in base64")
    return key


def _shown(name: str) -> str:
    """Return a name for an error: one that is as long as a key may be a key, whose own name was forgotten."""
    return (
        repr(name) if len(name) < _KEY_CHARACTERS else f"of {len(name)} characters (not shown, it may be a key itself)"
    )
