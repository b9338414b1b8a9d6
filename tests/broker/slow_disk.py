"""A slow disk, for tests of operations that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from raptormq.storage.fs.real import RealFileSystem
from tests.storage.faulty_filesystem import FaultyFileSystem


def flushes_the_log(kind: str, path: str) -> bool:
    """Return whether an operation makes messages durable."""
    return kind == "sync" and "/commitlog/" in path


def saves_the_topics(kind: str, path: str) -> bool:
    """Return whether an operation replaces the topic table."""
    return kind == "replace" and path.endswith("topics.json")


class SlowDisk(FaultyFileSystem):
    """A disk whose operations of one kind, by default flushes of the log, wait for the event :attr:`release`. It is set
    at first.
    """

    def __init__(self, is_slow: Callable[[str, str], bool] = flushes_the_log) -> None:
        super().__init__(RealFileSystem())
        self._is_slow = is_slow
        self.release = threading.Event()
        self.release.set()

    def run(self, kind: str, path: str) -> None:
        if self._is_slow(kind, path):
            self.release.wait(30)
        super().run(kind, path)
