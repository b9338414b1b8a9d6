"""The file with the progress of delay levels: damage is reported, and files of Apache RocketMQ are read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from raptormq.broker.delay.progress import DelayProgress, delays_file
from raptormq.errors import StoreDamaged
from raptormq.files import read_file, write_file
from tests.clock import Clock
from tests.storage.memory_filesystem import MemoryFileSystem

PATH = "/delayOffset.json"
OFFSETS = {1: 40, 5: 1000}
LOG_OFFSET = 4096


def load(volume: MemoryFileSystem) -> DelayProgress:
    return DelayProgress(delays_file(PATH, volume), Clock())


def saved() -> tuple[MemoryFileSystem, bytes]:
    volume = MemoryFileSystem()
    progress = load(volume)
    progress.offsets.update(OFFSETS)
    progress.save(progress.to_dict(LOG_OFFSET))
    return volume, read_file(volume, PATH)


def test_no_flipped_bit_makes_the_delivery_further_than_it_is() -> None:
    volume, data = saved()
    for at in range(len(data)):
        for bit in range(8):
            write_file(volume, PATH, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with contextlib.suppress(StoreDamaged):  # else the damage is in white space or in the name of the CRC
                found = load(volume)
                assert (found.offsets, found.log_offset) == (OFFSETS, LOG_OFFSET)


def test_a_damaged_number_is_told_with_what_to_do() -> None:
    volume, data = saved()
    write_file(volume, PATH, data.replace(b"1000", b"3000"))
    with pytest.raises(StoreDamaged, match=rf"{PATH} is damaged \(its crc32 does not fit\), .* replace "):
        load(volume)


@pytest.mark.parametrize("kept", [("offsetTable", "dataVersion"), ("offsetTable",)])
def test_one_that_rocketmq_has_written_is_read(kept: tuple[str, ...]) -> None:
    volume, data = saved()
    loaded: dict[str, Any] = json.loads(data)
    write_file(volume, PATH, json.dumps({key: loaded[key] for key in kept}).encode())
    found = load(volume)
    assert (found.offsets, found.log_offset) == (OFFSETS, None)
