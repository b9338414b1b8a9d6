"""The recorded frames of `tests/golden` as test parameters; see the README there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raptormq.protocol import command
from raptormq.protocol.frame import FrameDecoder

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECORDINGS = ("client-json", "client-binary", "registration-json", "registration-binary")


def entries(recording: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((GOLDEN / f"{recording}.json").read_text(encoding="utf-8"))
    return entries


def frame_of(recording: str, entry: dict[str, Any]) -> bytes:
    return (GOLDEN / f"{recording}.bin").read_bytes()[entry["offset"] : entry["offset"] + entry["length"]]


def all_frames() -> list[Any]:
    return [
        pytest.param(frame_of(name, entry), entry, id=f"{name}-{entry['offset']}-code{entry['requestCode']}")
        for name in RECORDINGS
        for entry in entries(name)
    ]


def decode(frame: bytes) -> command.RemotingCommand:
    (whole,) = FrameDecoder().feed(frame)
    return command.decode(whole)


def frames_of(code: int, *, response: bool) -> list[Any]:
    """Return parameters for the requests with a code, or for the successful responses to them."""
    return [
        each
        for each in all_frames()
        if each.values[1]["requestCode"] == code
        and bool(each.values[1]["flag"] & 1) == response
        and (not response or each.values[1]["code"] == 0)
    ]
