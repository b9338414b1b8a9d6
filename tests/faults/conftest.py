"""A small volume that tests fill or make read-only."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.fs.real import RealFileSystem
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem

VOLUME_MIB = 48


@dataclass
class SmallVolume:
    """A volume of 48 MiB. If tmpfs cannot be mounted, the file system interface simulates the faults."""

    root: Path
    mounted: bool
    filesystem: FileSystem | None = None

    def fill(self) -> None:
        """Fill the volume, so that there is no space for another segment."""
        if self.mounted:
            with (self.root / "ballast").open("wb") as file:
                usage = os.statvfs(self.root)
                os.posix_fallocate(file.fileno(), 0, (usage.f_bavail * usage.f_frsize) - (1 << 20))
            return
        assert isinstance(self.filesystem, FaultyFileSystem)
        self.filesystem.faults.append(Fault(kind="allocate", path="/commitlog/", error=28, repeats=True))

    def make_room(self) -> None:
        """Free the space that :meth:`fill` has used."""
        if self.mounted:
            (self.root / "ballast").unlink()
            return
        assert isinstance(self.filesystem, FaultyFileSystem)
        self.filesystem.faults.clear()

    def make_read_only(self) -> None:
        """Make the volume read-only."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.root)], check=True)
            return
        for folder, _, files in os.walk(self.root, topdown=False):
            for name in files:
                Path(folder, name).chmod(0o444)
            Path(folder).chmod(0o555)


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[SmallVolume]:
    root = tmp_path / "volume"
    root.mkdir()
    size = f"size={VOLUME_MIB}m"
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(root)], check=False, capture_output=True)
    if mount.returncode == 0:
        yield SmallVolume(root, mounted=True)
        subprocess.run(["umount", "--lazy", str(root)], check=True)
    else:
        yield SmallVolume(root, mounted=False, filesystem=FaultyFileSystem(RealFileSystem()))
        for folder, _, _ in os.walk(root):
            Path(folder).chmod(0o755)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Raise the limit of descriptors, for tests with more connections than the default permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
