"""The file with the progress of timer messages: damage is reported, and files of Apache RocketMQ are read."""

from __future__ import annotations

import contextlib
import struct

import pytest

from raptormq.broker.delay.timer_progress import TimerProgress, TimerProgressFile
from raptormq.errors import StoreDamaged
from raptormq.files import read_file, write_file
from tests.storage.memory_filesystem import MemoryFileSystem

PATH = "/timercheck"
PROGRESS = TimerProgress(1_700_000_000_000, 40, 30)
SEAL = slice(504, 512)


def saved() -> tuple[MemoryFileSystem, TimerProgressFile, bytes]:
    volume = MemoryFileSystem()
    file = TimerProgressFile(volume, PATH)
    file.save(PROGRESS)
    return volume, file, read_file(volume, PATH)


def test_what_was_saved_is_found_again() -> None:
    _, file, data = saved()
    assert file.load() == PROGRESS
    assert len(data) == 4096


def test_no_flipped_bit_makes_the_delivery_further_than_it_is() -> None:
    volume, file, data = saved()
    for at in range(SEAL.stop):
        for bit in range(8):
            write_file(volume, PATH, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with contextlib.suppress(
                StoreDamaged
            ):  # else it could be a file of RocketMQ, after which the whole queue is read
                assert file.load() == PROGRESS._replace(first_waiting=0)


def test_a_damaged_number_is_told_with_what_to_do() -> None:
    volume, file, data = saved()
    write_file(volume, PATH, bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(
        StoreDamaged, match=f"{PATH} is damaged: its CRC does not match; replace it with an undamaged copy"
    ):
        file.load()


def test_one_of_an_older_version_is_read() -> None:
    volume, file, data = saved()
    write_file(volume, PATH, data[: SEAL.start] + bytes(4096 - SEAL.start))
    assert file.load() == PROGRESS


def test_one_that_rocketmq_has_gone_on_with_is_read_though_it_kept_the_seal() -> None:
    volume, file, data = saved()
    fields = struct.pack(">qqqqqqq", 1_700_000_001_000, 0, 50, 45, 0, 1_700_000_001_500, 1)
    write_file(volume, PATH, fields + data[len(fields) :])
    assert file.load() == TimerProgress(1_700_000_001_000, 50, 0)
