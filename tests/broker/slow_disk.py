"""A disk that takes its time, for the tests of SYNC_FLUSH."""

from __future__ import annotations

import threading

from raptormq.storage.faulty_filesystem import FaultyFileSystem
from raptormq.storage.real_filesystem import RealFileSystem


class SlowDisk(FaultyFileSystem):
    """A disk whose flushes of the commit log wait until :attr:`release` is set, as it is at first."""

    def __init__(self) -> None:
        super().__init__(RealFileSystem())
        self.release = threading.Event()
        self.release.set()

    def run(self, kind: str, path: str) -> None:
        if kind == "sync" and "/commitlog/" in path:
            self.release.wait(30)
        super().run(kind, path)
