"""Super users whose names and passwords are files, as Kubernetes mounts a Secret of type ``kubernetes.io/basic-auth``::

    <folder>/username
    <folder>/password
    <folder>/otherPassword    optional: accepted as well, while one password replaces the other

A folder is read again when its files change, so a password is replaced without a restart. The kubelet replaces all
files of a Secret at once by turning the link ``..data`` to another folder, so the files are read through that link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.signing import Credentials
from raptormq.security.users import SUPER, User

logger = get_logger(__name__)

CHECK_S = 1.0
"""A folder is looked at this often at most."""
_NAME, _PASSWORD, _OTHER = "username", "password", "otherPassword"
_MAX_BYTES = 4096


class MountedUser:
    """The user of one folder. ``clock`` returns seconds."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Raises:
            ConfigError: a file cannot be read or is empty. No text shows a password.
        """
        self._folder = folder
        self._clock = clock
        self._state: object = self._look()
        self._user = self._read()
        self._failed: object = None
        self._look_at = clock() + CHECK_S

    @property
    def user(self) -> User:
        """The user as the files say. While they cannot be used it stays as it was, and a warning says why."""
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + CHECK_S
            self._read_again()
        return self._user

    def credentials(self) -> Credentials:
        """What the user signs with."""
        user = self.user
        return Credentials(user.username, user.password)

    def _read_again(self) -> None:
        state = self._look()
        if state == self._state:
            return
        try:
            user = self._read()
        except ConfigError as error:
            if state != self._failed:
                logger.warning("the user stays as it was: %s", error)
            self._failed = state
            return
        self._state, self._failed = state, None
        if user != self._user:
            logger.info("user %s was read again from %s", user.username, self._folder)
        self._user = user

    def _look(self) -> object:
        """Differs when a file was changed."""
        folder = self._where()
        found: list[object] = [str(folder)]
        for name in (_NAME, _PASSWORD, _OTHER):
            try:
                status = (folder / name).stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError as error:
                found.append(error.errno)
        return found

    def _where(self) -> Path:
        data = self._folder / "..data"
        return data.resolve() if data.exists() else self._folder

    def _read(self) -> User:
        folder = self._where()
        other = self._text(folder / _OTHER) if (folder / _OTHER).exists() else ""
        return User(self._text(folder / _NAME), self._text(folder / _PASSWORD), SUPER, other_password=other)

    def _text(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_BYTES + 1).decode().strip()
        except OSError as error:
            raise ConfigError(f"cannot read {self._folder / path.name}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"{self._folder / path.name} is not UTF-8 text") from None
        if not text or len(text) > _MAX_BYTES:
            raise ConfigError(f"{self._folder / path.name} must have 1 to {_MAX_BYTES} bytes of text")
        return text


class MountedUsers:
    """The users of several folders."""

    def __init__(self, folders: Sequence[Path] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """
        Raises:
            ConfigError: a folder cannot be used, or two have the same user.
        """
        self._users = [MountedUser(folder, clock) for folder in folders]
        taken = [mounted.user.username for mounted in self._users]
        if len(set(taken)) != len(taken):
            raise ConfigError(f"superUserPaths: two of the folders {', '.join(map(str, folders))} have the same user")

    def get(self, username: str) -> User | None:
        """Return the user; None when there is none of that name."""
        for mounted in self._users:
            user = mounted.user
            if user.username == username:
                return user
        return None

    def all(self) -> list[User]:
        """Return all of them."""
        return [mounted.user for mounted in self._users]
