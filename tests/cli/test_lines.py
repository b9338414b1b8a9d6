"""Splitting of input into lines as it arrives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raptormq.cli import lines
from raptormq.cli.lines import read_lines
from raptormq.errors import MessageError


async def everything(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [line async for part in read_lines(file) for line in part]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\na\r\n", [b"", b"", b"a\r"]),
        (b"\xff\x00\n\n", [b"\xff\x00", b""]),
    ],
)
async def test_only_line_feeds_separate(tmp_path: Path, content: bytes, expected: list[bytes]) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    assert await everything(path) == expected


async def test_lines_longer_than_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"0123456789\nab\ncdefghijk")
    for size in range(1, 12):
        monkeypatch.setattr(lines, "READ_BYTES", size)
        assert await everything(path) == [b"0123456789", b"ab", b"cdefghijk"]


async def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "READ_BYTES", 4)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    path = tmp_path / "input"
    path.write_bytes(b"0123456789\n")
    assert await everything(path) == [b"0123456789"]
    path.write_bytes(b"0\n1\n23\n0123456789AB")
    with pytest.raises(MessageError, match="line 4 is longer than 10 bytes"):
        await everything(path)


async def test_a_pipe_gives_its_lines_before_it_ends() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        parts = read_lines(source)
        sink.write(b"first\nsec")
        assert await anext(parts) == [b"first"]
        sink.write(b"ond\nthird\n")
        assert await anext(parts) == [b"second", b"third"]
        sink.write(b"rest")
        sink.close()
        assert await anext(parts) == [b"rest"]
        with pytest.raises(StopAsyncIteration):
            await anext(parts)


async def test_dev_null_is_empty() -> None:
    assert await everything(Path(os.devnull)) == []
