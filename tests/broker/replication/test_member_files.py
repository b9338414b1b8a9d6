"""Files of a member beside its log: they survive restarts, and damaged ones are not used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raptormq.broker.replication.member_files import Left, MemberFiles, Progress
from raptormq.errors import StoreDamaged
from raptormq.json_file import dump_pretty, with_checksum
from raptormq.raft import Begin, Configuration, Entry, HardState, LostRange, Member, MemberPromise, Position, Promise

STATE = HardState(term=4, vote="n1", incarnation=(1 << 62) + 5, boot=2, group=1 << 61, recovering=True, outdated=True)
ENTRIES = (Entry(1, 0, Configuration.of([Member("n0", 1), Member("n1", 2)])), Entry(4, 700))


def test_a_new_disk_has_an_identity_of_its_own(tmp_path: Path) -> None:
    states = [MemberFiles(tmp_path, boot="b").load() for _ in range(2)]
    assert all(state.hard_state.incarnation and not state.entries for state in states)
    assert states[0] != states[1], "the first save alone stores it"


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES, sync_flush=False)
    promises = (MemberPromise("n1", 1 << 61, Promise(3, 4, 4, Position(1200, 4))),)
    progress = Progress(Position(1200, 4), 9, promises=promises, copied=((0, 700), (1 << 40, 1 << 41)))
    files.save_progress(progress)
    found = MemberFiles(tmp_path, boot="b").load()
    assert (found.hard_state, found.entries) == (STATE, ENTRIES)
    assert MemberFiles(tmp_path).load_progress() == progress
    files.save_progress(progress._replace(copied=()))
    assert MemberFiles(tmp_path).load_progress() == progress._replace(copied=())


def test_progress_of_0_2_0_does_not_show_what_was_copied(tmp_path: Path) -> None:
    value = {"offset": 1200, "entries": 4, "tablesOffset": 9, "historyEnd": 0, "promises": []}
    (tmp_path / "dledgerCommit.json").write_bytes(dump_pretty(with_checksum(value)))
    assert MemberFiles(tmp_path).load_progress() == Progress(Position(1200, 4), 9, copied=None)


def test_begin_and_lost_range_are_found_again(tmp_path: Path) -> None:
    state = STATE._replace(begin=Begin(4, 1 << 40), lost=LostRange(0, 1 << 40))
    MemberFiles(tmp_path, boot="b").save(state, ENTRIES, sync_flush=False)
    assert MemberFiles(tmp_path, boot="b").load().hard_state == state


def test_file_of_0_2_0_has_no_begin(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES, sync_flush=False)
    path = tmp_path / "dledger.json"
    value = json.loads(path.read_bytes())
    del value["hardState"]["begin"], value["crc32"]
    path.write_bytes(dump_pretty(with_checksum(value)))
    assert MemberFiles(tmp_path, boot="b").load().hard_state == STATE


def test_a_start_of_the_machine_is_told_from_one_of_the_process(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES, sync_flush=False)
    assert not files.may_have_lost_data(files.load())
    assert MemberFiles(tmp_path, boot="c").may_have_lost_data(files.load())


def test_what_was_flushed_before_it_was_confirmed_is_not_lost(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES, sync_flush=True)
    assert not MemberFiles(tmp_path, boot="c").may_have_lost_data(files.load())


def test_a_vote_is_not_forgotten_because_a_file_is_damaged(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES, sync_flush=False)
    path = tmp_path / "dledger.json"
    path.write_bytes(path.read_bytes().replace(b'"term": 4', b'"term": 3'))
    assert MemberFiles(tmp_path, boot="b").load().hard_state == STATE, "the second copy has the same contents"
    (tmp_path / "dledger.json.bak").unlink()
    with pytest.raises(StoreDamaged, match="crc32 does not fit"):
        MemberFiles(tmp_path, boot="b").load()
    path.unlink()
    with pytest.raises(StoreDamaged, match="is missing, and there is no backup"):
        MemberFiles(tmp_path, boot="b").load()


def used_by_another_broker(folder: Path, end: int = 1200) -> None:
    """Save the state of a member, then open the store with a broker without replication."""
    files = MemberFiles(folder, boot="b")
    files.save(STATE, ENTRIES, sync_flush=True)
    files.save_progress(Progress(Position(1200, 4), 9, 700))
    MemberFiles(folder, boot="c").leave("none", end)


def test_store_that_another_broker_has_not_changed_stays_that_of_the_member(tmp_path: Path) -> None:
    used_by_another_broker(tmp_path)
    files = MemberFiles(tmp_path, boot="b")
    files.rejoin(1200)
    found = MemberFiles(tmp_path, boot="b").load()
    assert (found.hard_state, found.entries, found.left) == (STATE, ENTRIES, None)
    assert not files.may_have_lost_data(found)
    assert files.load_progress() == Progress(Position(1200, 4), 9, 700)


@pytest.mark.parametrize("end", [1199, 1201])
def test_store_that_another_broker_has_changed_is_a_new_disk_until_it_joins_a_group(tmp_path: Path, end: int) -> None:
    used_by_another_broker(tmp_path)
    MemberFiles(tmp_path, boot="b").rejoin(end)
    files = MemberFiles(tmp_path, boot="b")
    state = files.load()
    assert (state.hard_state.group, state.entries, state.left) == (0, (), Left("none", 1200))
    assert state.hard_state.incarnation not in (0, STATE.incarnation)
    assert files.load_progress() == Progress(tables_offset=9, history_end=700)
    files.save(state.hard_state._replace(term=1), (), sync_flush=True)
    files.rejoin(end + 1)
    assert MemberFiles(tmp_path, boot="b").load().left == Left("none", 1200)
    files.save(state.hard_state._replace(group=7), (), sync_flush=True)
    assert files.left is None
    assert MemberFiles(tmp_path, boot="b").load().left is None


def test_first_broker_that_opens_the_store_of_a_member_is_recorded(tmp_path: Path) -> None:
    used_by_another_broker(tmp_path)
    MemberFiles(tmp_path, boot="c").leave("masterSlave", 5000)
    assert MemberFiles(tmp_path, boot="b").load().left == Left("none", 1200)
    assert MemberFiles(tmp_path, boot="b").load().hard_state == STATE, "an earlier release reads the same state"


def test_disk_without_a_group_records_no_other_broker(tmp_path: Path) -> None:
    MemberFiles(tmp_path, boot="b").leave("none", 1200)
    assert not list(tmp_path.iterdir())


def test_reset_does_not_empty_a_store_that_another_broker_has_used(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES, sync_flush=True, reset=Position(2400, 2))
    MemberFiles(tmp_path, boot="b").leave("none", 1200)
    emptied: list[int] = []
    files = MemberFiles(tmp_path, boot="b")
    files.finish_reset(emptied.append)
    files.rejoin(1200)
    assert not emptied
    assert files.load().hard_state.group == 0, "the saved entries are those of the log after the reset"
