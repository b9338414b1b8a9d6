"""Records of the demo: the source lines of a library, by default Python's, with reference figures from the files.

A record is one line including its line end. Files are read as bytes and split only after newlines, so that form
feeds, carriage returns and other encodings are preserved.
"""

from __future__ import annotations

import io
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NOT_THE_LIBRARY = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class SourceFile:
    """A file of the library."""

    path: Path
    key: str
    """Path relative to the library's folder, with forward slashes; key of its messages."""
    package: str
    """Top-level package or module of the file; tag of its messages."""

    def lines(self) -> Iterator[bytes]:
        """Yield the lines in order, including their line ends. The last line may have none."""
        return iter(io.BytesIO(self.path.read_bytes()))


@dataclass(frozen=True)
class Figures:
    """Compared figures of a package."""

    lines: int = 0
    size: int = 0
    """Total size in bytes, including line ends."""
    checksum: int = 0
    """Sum of the CRC-32 of all lines, to detect different lines with equal counts."""

    def __add__(self, other: Figures) -> Figures:
        return Figures(self.lines + other.lines, self.size + other.size, self.checksum + other.checksum)


def standard_library() -> Path:
    """Return the folder of Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def library_files(root: Path) -> list[SourceFile]:
    """Return the Python files below `root`, ordered by key, without site-packages."""
    files = []
    for path in root.rglob("*.py"):
        below = path.relative_to(root)
        if NOT_THE_LIBRARY.isdisjoint(below.parts) and path.is_file():
            files.append(SourceFile(path, below.as_posix(), below.parts[0].removesuffix(".py")))
    return sorted(files, key=lambda file: file.key)


def count(files: Iterable[SourceFile]) -> dict[str, Figures]:
    """Return the figures of every package."""
    figures: dict[str, Figures] = {}
    for file in files:
        lines = list(file.lines())
        of_file = Figures(len(lines), sum(map(len, lines)), sum(map(zlib.crc32, lines)))
        figures[file.package] = figures.get(file.package, Figures()) + of_file
    return {package: of_package for package, of_package in figures.items() if of_package.lines}
