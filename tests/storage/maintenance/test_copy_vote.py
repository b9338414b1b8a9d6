"""A record is valid if a majority of the group has equal originals of it; otherwise nobody knows which copy is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raptormq.storage.maintenance import Copy, Difference, agreed, differences
from tests.storage.maintenance.test_closed_segments import filled, log_bytes
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES

MEMBERS = [f"n{number}" for number in range(5)]
A, B, C = b"aaaa", b"bbbb", b"cccc"


@given(data=st.data())
def test_a_copy_is_valid_only_if_a_majority_has_received_it_undamaged(data: st.DataObject) -> None:
    """Members damage their copies in different ways; some have copied the bytes of another member; some are silent."""
    size = data.draw(st.sampled_from([2, 3, 4, 5]))
    members = MEMBERS[:size]
    majority = size // 2 + 1
    damaged = data.draw(st.sets(st.sampled_from(members)))
    copies = {member: b"damaged on " + member.encode() if member in damaged else A for member in members}
    copied = data.draw(st.sets(st.sampled_from(members)))
    for member in sorted(copied):
        copies[member] = copies[data.draw(st.sampled_from(members))]
    silent = data.draw(st.sets(st.sampled_from(members)))
    answers = {member: copies[member] for member in members if member not in silent}
    voters = [member for member in answers if member not in copied]
    intact = [member for member in voters if member not in damaged]
    assert agreed(answers, voters, majority) == (A if len(intact) >= majority else None)


def test_the_cases_of_three_members() -> None:
    assert agreed({"n0": A, "n1": B, "n2": B}, ["n0", "n1", "n2"], 2) == B
    assert agreed({"n0": A, "n1": B, "n2": B}, ["n0", "n1"], 2) is None, "a copy counts"
    assert agreed({"n0": A, "n1": B, "n2": B}, ["n1", "n2"], 2) == B, "the damaged member need not have an original"
    assert agreed({"n0": A, "n1": B}, ["n0", "n1"], 2) is None, "the missing member is ignored"
    assert agreed({"n0": A, "n1": B, "n2": C}, ["n0", "n1", "n2"], 2) is None
    assert agreed({"n0": A}, ["n0"], 1) == A


def test_each_record_that_differs_is_found_and_fillers_are_not_compared() -> None:
    store, places = filled(MemoryFileSystem())
    end = SEGMENT_BYTES * 2
    data = log_bytes(store)[:end]
    inside = [(offset, size) for offset, size in places if offset + size <= end]
    (first, first_size), (second, second_size), *_, (last, last_size) = inside

    def changed(*positions: int) -> bytes:
        found = bytearray(data)
        for position in positions:
            found[position] ^= 1
        return bytes(found)

    filler_byte = end - 1
    assert last + last_size < filler_byte
    copies = {
        "n0": Copy(changed(first + 40), ()),
        "n1": Copy(changed(second + 40, filler_byte), ()),
        "n2": Copy(changed(last + 40), ()),
    }

    def found(own: str) -> list[Difference]:
        return differences(own, copies, 0, 2, SEGMENT_BYTES)

    assert found("n0") == [
        Difference(first, first_size, ("n0",), is_decided=True, is_own=True),
        Difference(second, second_size, ("n1",), is_decided=True, is_own=False),
        Difference(last, last_size, ("n2",), is_decided=True, is_own=False),
    ]
    assert [each.is_own for each in found("n2")] == [False, False, True]
    undecided, own, of_n1 = (("n0", "n1", "n2"), False, False), (("n0",), True, True), (("n1",), True, False)

    def decided() -> list[tuple[tuple[str, ...], bool, bool]]:
        return [(each.members, each.is_decided, each.is_own) for each in found("n0")]

    copies["n2"] = copies["n2"]._replace(copied=None)
    assert decided() == [undecided, undecided, (("n2",), True, False)]
    copies["n2"] = copies["n2"]._replace(copied=((first, second),))
    assert decided() == [undecided, of_n1, (("n2",), True, False)]
    copies["n2"] = copies["n2"]._replace(copied=((first + first_size, end),))
    assert decided()[:2] == [own, undecided]


def test_equal_copies_have_no_difference() -> None:
    store, _ = filled(MemoryFileSystem())
    data = log_bytes(store)[:SEGMENT_BYTES]
    copies = {"n0": Copy(data, None), "n1": Copy(data, ())}
    assert differences("n0", copies, 0, 2, SEGMENT_BYTES) == []
