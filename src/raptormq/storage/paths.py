"""Names of the store's files and folders (Apache RocketMQ ``StorePathConfigHelper``)::

<root>/commitlog/<offset, 20 digits>                        segments, named by their first byte
<root>/consumequeue/<topic>/<queue id>/<offset, 20 digits>  queue files, named by their first byte
<root>/batchconsumequeue/<topic>/<queue id>/<offset>        the same of BatchCQ topics
<root>/index/<yyyyMMddHHmmssSSS>                            index by message keys
<root>/config/*.json                                        consumer offsets and the broker's tables
<root>/deleted/<number>                                     folders of deleted topics, which somebody removes
<root>/checkpoint  queueEnds  abort  lock
"""

from __future__ import annotations

from typing import NamedTuple

NAME_DIGITS = 20


class StorePaths(NamedTuple):
    """Absolute paths of a store."""

    root: str
    log: str

    @property
    def queues(self) -> str:
        """Folder of the consume queues."""
        return f"{self.root}/consumequeue"

    @property
    def batch_queues(self) -> str:
        """Folder of the consume queues of BatchCQ topics."""
        return f"{self.root}/batchconsumequeue"

    @property
    def key_index(self) -> str:
        """Folder of the index by message keys."""
        return f"{self.root}/index"

    @property
    def config(self) -> str:
        """Folder of the JSON files."""
        return f"{self.root}/config"

    @property
    def deleted(self) -> str:
        """Folder of what is to be removed."""
        return f"{self.root}/deleted"

    @property
    def checkpoint(self) -> str:
        """The checkpoint file."""
        return f"{self.root}/checkpoint"

    @property
    def queue_ends(self) -> str:
        """The file that says how far every queue was at the checkpoint."""
        return f"{self.root}/queueEnds"

    @property
    def abort(self) -> str:
        """The file that exists while a broker runs."""
        return f"{self.root}/abort"

    @property
    def lock(self) -> str:
        """The lock file."""
        return f"{self.root}/lock"


def file_name(offset: int) -> str:
    """Name of the file whose first byte has this offset."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_offsets(names: list[str]) -> list[int]:
    """First offsets of the files in a folder, ascending; other names are not ours and skipped."""
    return sorted(int(name) for name in names if len(name) == NAME_DIGITS and name.isascii() and name.isdigit())
