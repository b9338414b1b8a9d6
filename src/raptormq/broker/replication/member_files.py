"""The Raft state of a member on its disk: two small files in ``config``, beside the commit log.

``dledger.json`` is made durable before the member acts on its contents. The backup has the same contents. If the file
and its backup are missing, the marker (:mod:`raptormq.json_file`) prevents a start, because a member that has lost its
vote could vote twice in a term::

    {"hardState": {"term": 4, "vote": "n1", "incarnation": 77, "boot": 3, "group": 99, "recovering": false,
                   "outdated": false, "begin": [4, 1073741824], "lost": [0, 1073741824]},
     "entries": [[1, 0, [["n0", 77, "voter", "host:40911"], ...]], [4, 700, null]],
     "machineBoot": "<boot id of the kernel>", "syncFlush": false,
     "reset": [1073741824, 5],
     "left": {"mode": "none", "end": 1200},
     "crc32": 123}

``entries`` is the epoch table: term, offset, and the members where they change. ``machineBoot`` distinguishes a crash
of the process, which loses no written bytes, from a crash of the machine, which loses no flushed bytes; ``syncFlush``
says whether the process confirmed only flushed bytes. ``begin`` is the begin of the group's log, with the term of the
leader that decided it, and ``lost`` the part of the log that the group has lost, absent if none
(:mod:`raptormq.raft.begin`); version 0.2.0 writes neither. ``reset`` is present while the store must still be emptied.
It is the position (offset, entries) at which the new log begins. Without a group the disk then counts as a new one
(:mod:`~raptormq.broker.replication.renewal`). ``left`` is present after a broker of another replication mode has opened
the store: the mode, and the end of the log at that time (:meth:`MemberFiles.leave`); version 0.2.0 ignores it.

``dledgerCommit.json`` has a recent commit position and is written every few seconds. An outdated position is safe: the
member confirms more records after its start::

    {"offset": 1200, "entries": 4, "tablesOffset": 12, "historyEnd": 700,
     "promises": [["n1", 78, [3, 4, 4, [1200, 4]]], ...], "copied": [[0, 700], ...], "crc32": 123}

``tablesOffset`` is the queue offset of the first table record that a start applies again
(:mod:`~raptormq.broker.replication.table_records`). ``historyEnd`` is ``end`` of the last history received
(:mod:`~raptormq.broker.replication.log_history`). ``promises`` contains the promises of other members
(:attr:`raptormq.raft.Saved.promises`). ``copied`` lists the ranges below ``offset`` that this member has copied from
the disk of another one (:mod:`~raptormq.broker.replication.copied_ranges`); version 0.2.0 does not write it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from raptormq.broker.replication.codec import entries_from, promises_from, to_json
from raptormq.errors import BodyError
from raptormq.files import DiskFiles, Files
from raptormq.json_file import JsonFile, dump_pretty, with_checksum
from raptormq.protocol.bodies.members import flag_at, list_at, object_at, parse_integer, text_at
from raptormq.raft import ZERO, Begin, Entry, HardState, LostRange, MemberPromise, Position

_KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine_boot() -> str:
    """Return the boot id of the kernel; empty if the system has none."""
    try:
        return _KERNEL_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Left(NamedTuple):
    """The first use of a member's store by a broker of another replication mode."""

    mode: str
    end: int
    """End of the commit log when that broker opened it."""


class MemberState(NamedTuple):
    """Contents of ``dledger.json``."""

    hard_state: HardState
    entries: tuple[Entry, ...]
    machine_boot: str
    sync_flush: bool = False
    reset: Position | None = None
    left: Left | None = None


class Progress(NamedTuple):
    """Contents of ``dledgerCommit.json``."""

    commit: Position = ZERO
    tables_offset: int = 0
    history_end: int = 0
    promises: tuple[MemberPromise, ...] = ()
    copied: tuple[tuple[int, int], ...] | None = None
    """Copied ranges of the log below ``commit``; None if they are unknown."""


class MemberFiles:
    """Both files of one member. Methods that save block on the disk. Only one thread may call them at a time."""

    def __init__(self, folder: Path, files: Files | None = None, boot: str | None = None) -> None:
        """``boot`` is the boot id of the machine; by default :func:`machine_boot`."""
        disk = files or DiskFiles()
        self._boot = machine_boot() if boot is None else boot
        self.left: Left | None = None
        """Use of the store by another broker, which excludes it from its former group; None if it is in a group."""
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
        """Return the saved state. On a new disk, return a state with a new random incarnation, which is not yet saved.

        Raises:
            StoreDamaged: the state was saved and cannot be read.
        """
        found = self._state.load(_state)
        if found is None:
            return MemberState(_new_disk(), (), self._boot)
        self.left = found.left
        return found

    def load_progress(self) -> Progress:
        """Return the saved progress.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        return self._progress.load(_progress) or Progress()

    def may_have_lost_data(self, state: MemberState) -> bool:
        """Return whether confirmed data may be lost: a process that confirms unflushed data saved ``state``, and the
        machine was restarted since then. An unknown boot id counts as a restart.
        """
        return not state.sync_flush and (state.machine_boot != self._boot or not self._boot)

    def save(
        self, hard_state: HardState, entries: tuple[Entry, ...], *, sync_flush: bool, reset: Position | None = None
    ) -> None:
        """Save the state; it is durable on return. With ``reset`` the next start empties the store first.

        ``sync_flush`` says whether this process confirms only flushed data, and has flushed the data that it found at
        its start.

        Raises:
            OSError: the save failed. The file has its old or its new contents.
        """
        value = _encoded(hard_state, entries, self._boot, sync_flush=sync_flush)
        if reset is not None:
            value["reset"] = [reset.offset, reset.entries]
        self.left = None if hard_state.group else self.left
        if self.left is not None:
            value["left"] = self.left._asdict()
        self._state.save_bytes(dump_pretty(with_checksum(value)))

    def renew(self) -> None:
        """Save the state of a new disk, with a new incarnation: the next start empties the store first.

        Raises:
            OSError: the save failed. The file has its old or its new contents.
        """
        self.save(_new_disk(), (), sync_flush=False, reset=ZERO)

    def finish_reset(self, empty: Callable[[int], None]) -> None:
        """Complete a saved reset, if there is one. Must be called before the store is opened.

        Args:
            empty: empties the store so that its log begins at the given offset. Its errors propagate.

        Raises:
            StoreDamaged: the state cannot be read.
            OSError: the disk failed; the next start retries.
        """
        state = self.load()
        if state.reset is not None and state.left is None:  # otherwise it may have messages of another broker
            empty(state.reset.offset)
            promises = self.load_progress().promises if state.hard_state.group else ()
            self.save_progress(Progress(state.reset, promises=promises))
            self.save(state.hard_state, state.entries, sync_flush=state.sync_flush)

    def leave(self, mode: str, end: int) -> None:
        """Record that a broker of another replication mode opens the store, whose log ends at ``end``. Must be called
        before that broker appends to the log. Does nothing for a disk without a group, and after the first call.

        Raises:
            StoreDamaged: the state cannot be read.
            OSError: the disk failed.
        """
        state = self.load()
        if state.hard_state.group and state.left is None:
            self._save_left(state, Left(mode, end))

    def rejoin(self, end: int) -> None:
        """Decide whether the disk is still that of a member, after the store was opened. ``end`` is the end of its log.

        The group does not have what another broker has appended to the log, and its members cannot know that these
        messages were acknowledged. If the log has changed, the disk therefore gets a new identity without a group. With
        its data it does not join the former group, and the data is not truncated. Otherwise it stays the disk of the
        member.

        Raises:
            StoreDamaged: the state cannot be read.
            OSError: the disk failed.
        """
        state = self.load()
        if state.left is None or not state.hard_state.group:
            return
        if state.left.end == end and state.reset is None:
            self._save_left(state, None)
            return
        self.save_progress(self.load_progress()._replace(commit=ZERO, promises=()))
        self.save(_new_disk(), (), sync_flush=state.sync_flush)

    def _save_left(self, state: MemberState, left: Left | None) -> None:
        value = _encoded(state.hard_state, state.entries, state.machine_boot, sync_flush=state.sync_flush)
        if state.reset is not None:
            value["reset"] = [state.reset.offset, state.reset.entries]
        if left is not None:
            value["left"] = left._asdict()
        self.left = left
        self._state.save_bytes(dump_pretty(with_checksum(value)))

    def save_progress(self, progress: Progress) -> None:
        """Save the progress.

        Raises:
            OSError: the save failed. The file has its old or its new contents.
        """
        value: dict[str, Any] = {
            "offset": progress.commit.offset,
            "entries": progress.commit.entries,
            "tablesOffset": progress.tables_offset,
            "historyEnd": progress.history_end,
            "promises": to_json(progress.promises),
        }
        if progress.copied is not None:
            value["copied"] = [list(each) for each in progress.copied]
        self._progress.save_bytes(dump_pretty(with_checksum(value)))


def _new_disk() -> HardState:
    return HardState(incarnation=secrets.randbits(62) + 1)


def _encoded(hard_state: HardState, entries: tuple[Entry, ...], boot: str, *, sync_flush: bool) -> dict[str, Any]:
    state = hard_state._asdict() | {"begin": list(hard_state.begin)}
    if hard_state.lost is None:
        del state["lost"]
    else:
        state["lost"] = list(hard_state.lost)
    return {"hardState": state, "entries": to_json(entries), "machineBoot": boot, "syncFlush": sync_flush}


def _state(value: dict[str, Any]) -> MemberState:
    state = object_at(value, "hardState")
    numbers = {name: parse_integer(state[name]) for name in ("term", "incarnation", "boot", "group")}
    if not numbers["incarnation"]:
        raise BodyError("hardState.incarnation is 0")
    hard_state = HardState(
        vote=text_at(state, "vote", ""),
        recovering=flag_at(state, "recovering"),
        outdated=flag_at(state, "outdated"),
        begin=Begin(*map(parse_integer, list_at(state, "begin"))),
        lost=LostRange(*map(parse_integer, list_at(state, "lost"))) if "lost" in state else None,
        **numbers,
    )
    reset, left = value.get("reset"), object_at(value, "left")
    return MemberState(
        hard_state,
        entries_from(value["entries"]),
        str(value.get("machineBoot", "")),
        flag_at(value, "syncFlush"),
        None if reset is None else Position(*map(parse_integer, reset)),
        Left(text_at(left, "mode"), parse_integer(left.get("end"))) if left else None,
    )


def _progress(value: dict[str, Any]) -> Progress:
    commit = Position(parse_integer(value["offset"]), parse_integer(value["entries"]))
    tables_offset, history_end = (parse_integer(value.get(name, 0)) for name in ("tablesOffset", "historyEnd"))
    copied = None
    if "copied" in value:
        copied = tuple((parse_integer(begin), parse_integer(end)) for begin, end in list_at(value, "copied"))
    return Progress(commit, tables_offset, history_end, promises_from(value.get("promises", [])), copied)
