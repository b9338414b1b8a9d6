"""Paths that are not durable stay recorded until they are synced."""

from __future__ import annotations

from raptormq.storage.queue.files import UnsyncedPaths


def taken(unsynced: UnsyncedPaths) -> tuple[list[str], list[str]]:
    files, folders = unsynced.take()
    return sorted(files), sorted(folders)


def test_what_was_taken_in_vain_is_taken_again() -> None:
    unsynced = UnsyncedPaths()
    assert not unsynced
    unsynced.add_file("/a/0")
    unsynced.add_folders("/a", "/")
    assert taken(unsynced) == (["/a/0"], ["/", "/a"])
    assert unsynced
    unsynced.add_file("/b/0")
    assert taken(unsynced) == (["/a/0", "/b/0"], ["/", "/a"])
    unsynced.mark_synced()
    assert (bool(unsynced), taken(unsynced)) == (False, ([], []))


def test_what_is_written_again_meanwhile_is_not_done() -> None:
    unsynced = UnsyncedPaths()
    unsynced.add_file("/a/0")
    unsynced.add_folders("/a")
    unsynced.take()
    unsynced.add_file("/a/0")
    unsynced.mark_synced()
    assert taken(unsynced) == (["/a/0"], [])


def test_a_file_that_is_gone_is_not_looked_for() -> None:
    unsynced = UnsyncedPaths()
    unsynced.add_file("/a/0")
    unsynced.add_file("/b/0")
    unsynced.take()
    unsynced.add_file("/c/0")
    unsynced.discard_file("/a/0")
    unsynced.discard_file("/c/0")
    assert taken(unsynced) == (["/b/0"], [])
