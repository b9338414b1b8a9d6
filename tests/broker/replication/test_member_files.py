"""Files of a member beside its log: they survive restarts, and damaged ones are not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.errors import StoreDamaged
from raptormq.raft import Configuration, Entry, HardState, Member, Position

STATE = HardState(term=4, vote="n1", incarnation=(1 << 62) + 5, boot=2, group=1 << 61, recovering=True)
ENTRIES = (Entry(1, 0, Configuration.of([Member("n0", 1), Member("n1", 2)])), Entry(4, 700))


def test_a_new_disk_has_an_identity_of_its_own(tmp_path: Path) -> None:
    states = [MemberFiles(tmp_path, boot="b").load() for _ in range(2)]
    assert all(state.hard_state.incarnation and not state.entries for state in states)
    assert states[0] != states[1], "the first save alone stores it"


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES)
    files.save_progress(Progress(Position(1200, 4), 9))
    found = MemberFiles(tmp_path, boot="b").load()
    assert (found.hard_state, found.entries) == (STATE, ENTRIES)
    assert MemberFiles(tmp_path).load_progress() == Progress(Position(1200, 4), 9)


def test_a_start_of_the_machine_is_told_from_one_of_the_process(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES)
    assert not files.lost_power(files.load())
    assert MemberFiles(tmp_path, boot="c").lost_power(files.load())


def test_a_vote_is_not_forgotten_because_a_file_is_damaged(tmp_path: Path) -> None:
    files = MemberFiles(tmp_path, boot="b")
    files.save(STATE, ENTRIES)
    path = tmp_path / "dledger.json"
    path.write_bytes(path.read_bytes().replace(b'"term": 4', b'"term": 3'))
    assert MemberFiles(tmp_path, boot="b").load().hard_state == STATE, "the second copy has the same contents"
    (tmp_path / "dledger.json.bak").unlink()
    with pytest.raises(StoreDamaged, match="crc32 does not fit"):
        MemberFiles(tmp_path, boot="b").load()
    path.unlink()
    with pytest.raises(StoreDamaged, match="is missing, and there is no backup"):
        MemberFiles(tmp_path, boot="b").load()
