"""What is not durable yet is never forgotten."""

from __future__ import annotations

from raptormq.storage.queue.files import UnsyncedPaths


def taken(unsynced: UnsyncedPaths) -> tuple[list[str], list[str]]:
    files, folders = unsynced.take()
    return sorted(files), sorted(folders)


def test_what_was_taken_in_vain_is_taken_again() -> None:
    unsynced = UnsyncedPaths()
    assert not unsynced
    unsynced.written("/a/0")
    unsynced.renamed("/a", "/")
    assert taken(unsynced) == (["/a/0"], ["/", "/a"])
    assert unsynced
    unsynced.written("/b/0")
    assert taken(unsynced) == (["/a/0", "/b/0"], ["/", "/a"])
    unsynced.done()
    assert (bool(unsynced), taken(unsynced)) == (False, ([], []))


def test_what_is_written_again_meanwhile_is_not_done() -> None:
    unsynced = UnsyncedPaths()
    unsynced.written("/a/0")
    unsynced.renamed("/a")
    unsynced.take()
    unsynced.written("/a/0")
    unsynced.done()
    assert taken(unsynced) == (["/a/0"], [])


def test_a_file_that_is_gone_is_not_looked_for() -> None:
    unsynced = UnsyncedPaths()
    unsynced.written("/a/0")
    unsynced.written("/b/0")
    unsynced.take()
    unsynced.written("/c/0")
    unsynced.removed("/a/0")
    unsynced.removed("/c/0")
    assert taken(unsynced) == (["/b/0"], [])
