"""What a member of a group keeps on its disk beside the commit log: two small files below ``config``.

``dledger.json`` is durable before anything follows from it. Its backup is written with the same contents and its marker
(:mod:`raptormq.json_file`) lets no start go on without it: a member that has forgotten its vote could give it twice::

    {"hardState": {"term": 4, "vote": "n1", "incarnation": 77, "boot": 3, "group": 99, "recovering": false},
     "entries": [[1, 0, [["n0", 77, "voter", "host:40911"], ...]], [4, 700, null]],
     "machineBoot": "<boot id of the kernel>",
     "crc32": 123}

``entries`` is the epoch table: term, offset, and the members where they change. ``machineBoot`` tells a crash of the
process, which loses nothing that was written, from one of the machine.

``dledgerCommit.json`` says what was known to be committed some time ago, and is written at most every few seconds. An
older one does no harm: a start has more to confirm::

    {"offset": 1200, "entries": 4, "tablesOffset": 12, "crc32": 123}

``tablesOffset`` is the place in the queue of the table records (:mod:`~raptormq.broker.replication.table_records`) up
to which the tables on this disk have them.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, NamedTuple

from raptormq.broker.replication.codec import entries_from, entries_to_json
from raptormq.errors import BodyError
from raptormq.files import DiskFiles, Files
from raptormq.json_file import JsonFile, dump_pretty, with_checksum
from raptormq.protocol.bodies.members import flag_at, object_at, parse_integer, text_at
from raptormq.raft import ZERO, Entry, HardState, Position

_KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine_boot() -> str:
    """Return an id of this start of the machine; empty where the system has none."""
    try:
        return _KERNEL_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class MemberState(NamedTuple):
    """What ``dledger.json`` says."""

    hard_state: HardState
    entries: tuple[Entry, ...]
    machine_boot: str


class Progress(NamedTuple):
    """What ``dledgerCommit.json`` says."""

    commit: Position = ZERO
    tables_offset: int = 0


class MemberFiles:
    """Both files of one member. Saving waits for the disk; for one thread at a time."""

    def __init__(self, folder: Path, files: Files | None = None, boot: str | None = None) -> None:
        """``boot`` is the start of the machine, by default the present one."""
        disk = files or DiskFiles()
        self._boot = machine_boot() if boot is None else boot
        self._state = JsonFile(
            str(folder / "dledger.json"),
            disk,
            key="hardState",
            without="without it, and with an empty commit log, this broker joins its group as a new member",
            marker=str(folder / "dledger.made"),
        )
        self._progress = JsonFile(
            str(folder / "dledgerCommit.json"), disk, without="without it the group confirms the whole log again"
        )

    def load(self) -> MemberState:
        """Return the state; on a disk without one a new identity, which the first save makes durable.

        Raises:
            StoreDamaged: there was one, and it cannot be read.
        """
        found = self._state.load(_state)
        if found is not None:
            return found
        return MemberState(HardState(incarnation=secrets.randbits(62) + 1), (), self._boot)

    def load_progress(self) -> Progress:
        """Return what was known to be committed.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        return self._progress.load(_progress) or Progress()

    def lost_power(self, state: MemberState) -> bool:
        """Return whether the machine was started since ``state`` was saved."""
        return state.machine_boot != self._boot or not self._boot

    def save(self, hard_state: HardState, entries: tuple[Entry, ...]) -> None:
        """Write the state; durable on return.

        Raises:
            OSError: the old state is still there.
        """
        value = {
            "hardState": hard_state._asdict(),
            "entries": entries_to_json(entries),
            "machineBoot": self._boot,
        }
        self._state.save_bytes(dump_pretty(with_checksum(value)))

    def save_progress(self, progress: Progress) -> None:
        """Write what is known to be committed.

        Raises:
            OSError: the old contents are still there.
        """
        value = {
            "offset": progress.commit.offset,
            "entries": progress.commit.entries,
            "tablesOffset": progress.tables_offset,
        }
        self._progress.save_bytes(dump_pretty(with_checksum(value)))


def _state(value: dict[str, Any]) -> MemberState:
    state = object_at(value, "hardState")
    numbers = {name: parse_integer(state[name]) for name in ("term", "incarnation", "boot", "group")}
    if not numbers["incarnation"]:
        raise BodyError("it has no incarnation")
    hard_state = HardState(vote=text_at(state, "vote", ""), recovering=flag_at(state, "recovering", False), **numbers)
    return MemberState(hard_state, entries_from(value["entries"]), str(value.get("machineBoot", "")))


def _progress(value: dict[str, Any]) -> Progress:
    commit = Position(parse_integer(value["offset"]), parse_integer(value["entries"]))
    return Progress(commit, parse_integer(value.get("tablesOffset", 0)))
