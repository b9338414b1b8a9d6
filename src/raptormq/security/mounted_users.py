"""Super users defined by files, such as a mounted Kubernetes Secret of type ``kubernetes.io/basic-auth``::

    <folder>/username
    <folder>/password
    <folder>/otherPassword    optional second password, for the time of a password change

When the files change, they are read again, so a password change needs no restart. The kubelet updates all files of a
Secret atomically by replacing the symbolic link ``..data``. The files are therefore read through this link.
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
"""Minimum interval between two checks for changed files, in seconds."""
_NAME, _PASSWORD, _OTHER = "username", "password", "otherPassword"
_MAX_BYTES = 4096


class MountedUser:
    """The user defined by one folder. ``clock`` returns seconds."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files.

        Raises:
            ConfigError: a file is missing, unreadable or empty. The message contains no password.
        """
        self._folder = folder
        self._clock = clock
        self._state: object = self._file_state()
        self._user = self._read()
        self._failed: object = None
        self._next_check = clock() + CHECK_S

    @property
    def user(self) -> User:
        """The current user. If changed files are invalid, the previous user remains valid and a warning is logged."""
        if self._clock() >= self._next_check:
            self._next_check = self._clock() + CHECK_S
            self._read_again()
        return self._user

    def credentials(self) -> Credentials:
        """Return the credentials with which the user signs requests."""
        user = self.user
        return Credentials(user.username, user.password)

    def _read_again(self) -> None:
        state = self._file_state()
        if state == self._state:
            return
        try:
            user = self._read()
        except ConfigError as error:
            if state != self._failed:
                logger.warning("cannot update user %s: %s", self._user.username, error)
            self._failed = state
            return
        self._state, self._failed = state, None
        if user != self._user:
            logger.info("updated user %s from %s", user.username, self._folder)
        self._user = user

    def _file_state(self) -> object:
        """Return a value that changes when a file changes."""
        folder = self._current_folder()
        found: list[object] = [str(folder)]
        for name in (_NAME, _PASSWORD, _OTHER):
            try:
                status = (folder / name).stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError as error:
                found.append(error.errno)
        return found

    def _current_folder(self) -> Path:
        data = self._folder / "..data"
        return data.resolve() if data.exists() else self._folder

    def _read(self) -> User:
        folder = self._current_folder()
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
    """The users defined by several folders."""

    def __init__(self, folders: Sequence[Path] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files of all folders.

        Raises:
            ConfigError: a file is missing or invalid, or two folders define the same user.
        """
        self._users = [MountedUser(folder, clock) for folder in folders]
        names = [mounted.user.username for mounted in self._users]
        if len(set(names)) != len(names):
            raise ConfigError(f"superUserPaths: two of the folders {', '.join(map(str, folders))} define the same user")

    def get(self, username: str) -> User | None:
        """Return the user with this name, or None."""
        for mounted in self._users:
            user = mounted.user
            if user.username == username:
                return user
        return None

    def all(self) -> list[User]:
        """Return all users."""
        return [mounted.user for mounted in self._users]
