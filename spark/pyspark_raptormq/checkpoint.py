"""Offset log in the checkpoint of a streaming query. Spark writes `offsets/N` before batch N and `commits/N` after it.

A file in `offsets` has lines of UTF-8 text::

    v1
    {"batchWatermarkMs":0,...}        metadata of Spark, not changed here
    {"v": 2, "q": {...}}              end offset of source 0 in the format of `offsets`; "-" if the source has none
    ...                               further sources

Hadoop stores the checksum of each file in `.N.crc`; a file without a checksum file is not verified.
Used by `commands`. Source: Spark `OffsetSeqLog`, `CommitLog`.
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
    """Spark's metadata line."""
    sources: tuple[str, ...]
    """One line per source of the query."""

    def offsets(self) -> dict[int, StreamOffset]:
        """Return the offsets of the RaptorMQ sources, by source number."""
        found: dict[int, StreamOffset] = {}
        for number, text in enumerate(self.sources):
            try:
                if text != _NONE:
                    found[number] = stream_offset(parse_json(text))
            except OffsetFormatError:
                continue  # a source of another kind
        return found


class Checkpoint:
    """A checkpoint in a local or mounted file system.

    Args:
        folder: the value of option `checkpointLocation`.

    Raises:
        CheckpointError: The folder is not a checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not (folder / "offsets").is_dir():
            raise CheckpointError(f"{folder} is not a checkpoint of a streaming query: it has no folder offsets")

    def batches(self) -> list[int]:
        """Return the numbers of the logged batches, sorted."""
        return _numbers(self._folder / "offsets")

    def is_committed(self, batch: int) -> bool:
        """Return whether a batch is committed. Spark repeats an uncommitted batch after a restart."""
        return (self._folder / "commits" / str(batch)).exists()

    def read(self, batch: int | None = None) -> LoggedBatch:
        """Return a batch; by default the last one.

        Raises:
            CheckpointError: The batch does not exist or cannot be read.
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
            raise CheckpointError(f"{path} is not a file of an offset log") from None
        if version != _VERSION:
            raise CheckpointError(f"{path} has version {version!r:.40} of the offset log, not {_VERSION}")
        return LoggedBatch(number, metadata, tuple(sources))

    def rewrite(self, batch: LoggedBatch, sources: Sequence[str]) -> Path:
        """Replace the source lines of a batch. Return the path of the backup of the original file.

        Raises:
            CheckpointError: The offset log changed meanwhile, so the query is running.
        """
        path = self._folder / "offsets" / str(batch.number)
        backup = self._folder / BACKUP / str(batch.number)
        backup.parent.mkdir(exist_ok=True)
        if self.batches()[-1] != batch.number or self.read(batch.number) != batch:
            raise CheckpointError(f"{self._folder} changed meanwhile: stop the query first")
        if not backup.exists():
            backup.write_bytes(path.read_bytes())
        text = "\n".join((_VERSION, batch.metadata, *sources))
        written = path.with_name(f".{batch.number}.rewritten")
        with written.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.with_name(f".{batch.number}.crc").unlink(missing_ok=True)  # checksum of the replaced file
        written.replace(path)
        return backup


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isascii() and path.name.isdecimal())
