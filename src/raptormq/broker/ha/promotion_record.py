"""The promotion of this broker from a slave to the master: ``config/haPromotion.json``.

::

    {"isSlave": true, "offset": 0, "masterBegin": 1048576}  the broker is a slave; the log of its master begins there
    {"isSlave": false, "offset": 73400320}                  it was promoted when its log ended there

A promotion discards the messages of the old master after the offset. A broker that was a slave at its last start and is
started as a master counts as promoted, too; the operator promotes brokers in this way. A broker that was never a slave
has no file.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from raptormq.broker.in_thread import run_to_completion
from raptormq.files import DiskFiles, Files
from raptormq.json_file import JsonFile
from raptormq.logs import get_logger
from raptormq.protocol.bodies.members import flag_at, parse_integer

logger = get_logger(__name__)


class PromotionRecord:
    """The record of one broker.

    Attributes:
        is_slave: whether the broker was a slave when the record was written.
        offset: end of its log at its promotion; 0 if it was never promoted.
        master_begin: begin of the log of its master, when the master last responded; None if it is unknown.
    """

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        """Read the record in ``folder``.

        Raises:
            StoreDamaged: the record and its backup cannot be read.
        """
        self._file = JsonFile(
            str(folder / "haPromotion.json"),
            files or DiskFiles(),
            key="isSlave",
            without="without it, a master that was promoted does not serve while the old master has a longer log",
        )
        found = self._file.load(_contents)
        self.is_slave, self.offset, self.master_begin = found or (False, 0, None)

    async def follows(self) -> None:
        """Record that the broker is a slave."""
        if not self.is_slave:
            await self._save(is_slave=True, offset=0, master_begin=None)

    async def master_begins(self, offset: int) -> None:
        """Record where the log of the master begins."""
        if self.is_slave and offset != self.master_begin:
            await self._save(is_slave=True, offset=0, master_begin=offset)

    async def promoted(self, offset: int) -> None:
        """Record that the broker was promoted with the log end ``offset``."""
        await self._save(is_slave=False, offset=offset, master_begin=None)

    async def _save(self, *, is_slave: bool, offset: int, master_begin: int | None) -> None:
        """Write the record. Errors are only logged, because without the record the master waits for a decision of the
        operator. A cancelled call returns after its write, so that it does not replace what the next call writes.
        """
        self.is_slave, self.offset, self.master_begin = is_slave, offset, master_begin
        value: dict[str, Any] = {"isSlave": is_slave, "offset": offset}
        if master_begin is not None:
            value["masterBegin"] = master_begin
        try:
            await run_to_completion(partial(self._file.save, value))
        except OSError as error:
            logger.warning("cannot save %s: %s", self._file.path, error)


def _contents(value: dict[str, Any]) -> tuple[bool, int, int | None]:
    begin = value.get("masterBegin")
    return flag_at(value, "isSlave"), parse_integer(value["offset"]), None if begin is None else parse_integer(begin)
