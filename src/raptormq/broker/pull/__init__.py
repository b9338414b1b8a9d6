"""Pulls that wait: held pulls, answers in waves, resets of offsets."""

from __future__ import annotations

from raptormq.broker.pull.answer_batching import WAVE_MS, PullCoalescer
from raptormq.broker.pull.codes import empty_code
from raptormq.broker.pull.held_pulls import BUCKET_MS, LONG_MS, MAX_WAIT_MS, HeldPull, HeldPulls
from raptormq.broker.pull.offset_resets import OffsetResets

__all__ = [
    "BUCKET_MS",
    "LONG_MS",
    "MAX_WAIT_MS",
    "WAVE_MS",
    "HeldPull",
    "HeldPulls",
    "OffsetResets",
    "PullCoalescer",
    "empty_code",
]
