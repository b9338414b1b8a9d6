"""The demo's lists: all lines, in order, within both limits, with file and package on each."""

from __future__ import annotations

from pathlib import Path

from demo.sending import MAX_LIST_BODY_BYTES, MAX_LIST_MESSAGES, message_lists
from demo.source_lines import SourceFile


def test_lists_keep_every_line_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x\n" * (MAX_LIST_MESSAGES + 1))
    (tmp_path / "b.py").write_bytes(b"last")
    files = [SourceFile(tmp_path / name, f"p/{name}", "p") for name in ("a.py", "b.py")]
    lists = list(message_lists(files))
    assert [len(batch) for batch in lists] == [MAX_LIST_MESSAGES, 2]
    sent = [(message.body, message.tags, message.keys) for batch in lists for message in batch]
    assert sent == [(b"x\n", "p", ("p/a.py",))] * (MAX_LIST_MESSAGES + 1) + [(b"last", "p", ("p/b.py",))]


def test_long_lines_make_short_lists(tmp_path: Path) -> None:
    line = b"x" * (MAX_LIST_BODY_BYTES // 2 - 1) + b"\n"
    (tmp_path / "a.py").write_bytes(line * 5)
    lists = list(message_lists([SourceFile(tmp_path / "a.py", "a.py", "a")]))
    assert [len(batch) for batch in lists] == [2, 2, 1]


def test_no_lines_make_no_list(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"")
    assert list(message_lists([SourceFile(tmp_path / "a.py", "a.py", "a")])) == []
