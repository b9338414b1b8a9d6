"""The records of the demo: line boundaries, the package of a line, and the figures."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.source_lines import Figures, SourceFile, count


def source_file(path: Path, content: bytes, package: str = "package") -> SourceFile:
    path.write_bytes(content)
    return SourceFile(path, path.name, package)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b"\n"]),
        (b"a\nb", [b"a\n", b"b"]),
        (b"a\r\n\x0cb\rc\n", [b"a\r\n", b"\x0cb\rc\n"]),
        (b"\xff\xfe\x00\n", [b"\xff\xfe\x00\n"]),
    ],
)
def test_lines_are_cut_after_newlines_only(tmp_path: Path, content: bytes, lines: list[bytes]) -> None:
    assert list(source_file(tmp_path / "x.py", content).lines()) == lines


def test_count_adds_the_files_of_a_package(tmp_path: Path) -> None:
    first = source_file(tmp_path / "a.py", b"one\ntwo\n", "p")
    second = source_file(tmp_path / "b.py", b"three", "p")
    empty = source_file(tmp_path / "c.py", b"", "nothing")
    checksum = sum(zlib.crc32(line) for line in (b"one\n", b"two\n", b"three"))
    assert count([first, second, empty]) == {"p": Figures(lines=3, size=13, checksum=checksum)}


@given(st.lists(st.binary(max_size=8), min_size=1), st.data())
def test_the_figures_notice_a_changed_line(lines: list[bytes], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(lines) - 1))
    other = data.draw(st.binary(max_size=8).filter(lambda line: line != lines[position]))
    before = sum((Figures(1, len(line), zlib.crc32(line)) for line in lines), Figures())
    lines[position] = other
    after = sum((Figures(1, len(line), zlib.crc32(line)) for line in lines), Figures())
    assert before != after
