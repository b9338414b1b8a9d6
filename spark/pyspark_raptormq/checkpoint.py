"""The offset log of a query's checkpoint, as files: `offsets/N` is written before batch N, `commits/N` behind it.

A file of `offsets` is UTF-8 text, a line each::

    v1
    {"batchWatermarkMs":0,...}        of Spark, left as it is
    {"v": 2, "q": {...}}              the end of source 0, as `offsets` draws it; "-" where a source has none
    ...                               the other sources

Beside each file Hadoop keeps its checksum, `.N.crc`; a file without one is read unchecked.
Neighbour: `commands`, which shows and rewrites. Source: Spark `OffsetSeqLog`, `CommitLog`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark_raptormq.errors import CheckpointError, OffsetFormatError
from pyspark_raptormq.offsets import StreamOffset, parse_json, stream_offset

_VERSION = "v1"
_NONE = "-"
BACKUP = "offsets-before-rewrite"


@dataclass(frozen=True)
class LoggedBatch:
    """One file of the offset log."""

    number: int
    metadata: str
    """Spark's own line."""
    sources: tuple[str, ...]
    """One line per source of the query."""

    def offsets(self) -> dict[int, StreamOffset]:
        """Return the offsets of the sources that are ours, by number of the source."""
        found: dict[int, StreamOffset] = {}
        for number, text in enumerate(self.sources):
            try:
                if text != _NONE:
                    found[number] = stream_offset(parse_json(text))
            except OffsetFormatError:
                continue  # of another kind of source
        return found


class Checkpoint:
    """A checkpoint on a file system that is mounted here.

    Args:
        folder: what option `checkpointLocation` names.

    Raises:
        CheckpointError: it is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not (folder / "offsets").is_dir():
            raise CheckpointError(f"{folder} is no checkpoint of a streaming query: it has no folder offsets")

    def batches(self) -> list[int]:
        """Return the numbers of the batches that are logged, sorted."""
        return _numbers(self._folder / "offsets")

    def is_committed(self, batch: int) -> bool:
        """Whether a batch is done: else Spark repeats it."""
        return (self._folder / "commits" / str(batch)).exists()

    def read(self, batch: int | None = None) -> LoggedBatch:
        """Return a batch, by default the last one.

        Raises:
            CheckpointError: there is none, or it cannot be read.
        """
        known = self.batches()
        number = (known[-1] if known else None) if batch is None else batch
        if number is None or number not in known:
            have = f"{known[0]} to {known[-1]}" if known else "none"
            raise CheckpointError(f"{self._folder} has no batch {number if batch is not None else ''}; it has {have}")
        path = self._folder / "offsets" / str(number)
        try:
            version, metadata, *sources = path.read_text(encoding="utf-8").split("\n")
        except (UnicodeDecodeError, ValueError):
            raise CheckpointError(f"{path} is no file of an offset log") from None
        if version != _VERSION:
            raise CheckpointError(f"{path} is of version {version!r:.40} of the offset log, not {_VERSION}")
        return LoggedBatch(number, metadata, tuple(sources))

    def rewrite(self, batch: LoggedBatch, sources: Sequence[str]) -> Path:
        """Replace the sources of a batch and return where the file as it was is kept.

        Raises:
            CheckpointError: another batch was logged meanwhile: the query runs.
        """
        path = self._folder / "offsets" / str(batch.number)
        backup = self._folder / BACKUP / str(batch.number)
        backup.parent.mkdir(exist_ok=True)
        if self.batches()[-1] != batch.number or self.read(batch.number) != batch:
            raise CheckpointError(f"{self._folder} has changed meanwhile: stop the query first")
        if not backup.exists():
            backup.write_bytes(path.read_bytes())
        text = "\n".join((_VERSION, batch.metadata, *sources))
        written = path.with_name(f".{batch.number}.rewritten")
        with written.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.with_name(f".{batch.number}.crc").unlink(missing_ok=True)  # of the file that it replaces
        written.replace(path)
        return backup


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isascii() and path.name.isdecimal())
