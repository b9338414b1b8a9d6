"""Fixtures that several test files of the store share."""

from __future__ import annotations

import pytest

from raptormq.storage.conversion import job as conversion_run
from raptormq.storage.conversion import rebuild as queue_conversion
from raptormq.storage.conversion import verify as queue_comparison


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make conversions of queues yield to the event loop after every 16 items, without a pause."""
    for name in ("_SLICE_S", "_PAUSE_S"):
        monkeypatch.setattr(conversion_run, name, 0.0)
    for module in (queue_conversion, queue_comparison):
        monkeypatch.setattr(module, "SLICE_ROWS", 16)
