"""Dispatch runs once per iteration of the event loop, and the next run repeats a failed one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.reput import ReputService
from raptormq.storage.config import StoreConfig
from raptormq.storage.queue.append_batches import Arrival, PendingRecord
from raptormq.storage.store import MessageStore


async def test_groups_of_one_turn_share_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20))
    store.open()
    seen: list[list[Arrival]] = []
    reput = ReputService(store)
    reput.listen(lambda arrivals: seen.append(list(arrivals)))
    for body in (b"1", b"2"):
        store.append([PendingRecord("t", 0, body)])
        reput.schedule()
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [[("t", 0, 1, 0), ("t", 0, 2, 0)]]
    reput.schedule()
    await asyncio.sleep(0)
    assert len(seen) == 1
    store.close()


async def test_who_listens_to_one_topic_is_told_when_it_is_among_the_messages(tmp_path: Path) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20))
    store.open()
    seen: list[list[Arrival]] = []
    reput = ReputService(store)
    reput.listen(lambda arrivals: seen.append(list(arrivals)), "wanted")
    for topics in (["other"], ["other", "wanted"]):
        store.append([PendingRecord(topic, 0, b"1") for topic in topics])
        reput.schedule()
        await asyncio.sleep(0)
    assert seen == [[("other", 0, 2, 0), ("wanted", 0, 1, 0)]]
    store.close()


async def test_a_failed_run_is_logged_and_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20))
    store.open()
    seen: list[Arrival] = []
    reput = ReputService(store)
    reput.listen(seen.extend)

    def fail() -> list[Arrival]:
        raise OSError("no more files")

    with monkeypatch.context() as patched:
        patched.setattr(store, "dispatch", fail)
        store.append([PendingRecord("t", 0, b"1")])
        reput.schedule()
        await asyncio.sleep(0)
    assert "dispatch failed" in caplog.text
    reput.schedule()
    await asyncio.sleep(0)
    assert seen == [("t", 0, 1, 0)]
    store.close()


async def test_a_failed_run_is_repeated_without_a_message_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A member of a group waits for it before it may lead."""
    monkeypatch.setattr("raptormq.broker.reput.REPEAT_S", 0.0)
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20))
    store.open()
    service = ReputService(store)
    runs: list[int] = []

    def fail() -> list[Arrival]:
        runs.append(1)
        raise OSError("no more files")

    assert service.is_working()
    await asyncio.sleep(0)
    store.append([PendingRecord("t", 0, b"1")])
    with monkeypatch.context() as patched:
        patched.setattr(store, "dispatch", fail)
        service.schedule()
        await asyncio.sleep(0)
        assert service.is_working(), "the failure may be transient"
        await asyncio.sleep(0)
        assert len(runs) == 2
        assert not service.is_working()
        await asyncio.sleep(0)
        assert len(runs) == 3
    assert caplog.text.count("dispatch failed") == 1
    assert not service.is_working()
    await asyncio.sleep(0)
    assert service.is_working()
    monkeypatch.setattr("raptormq.broker.reput.REPEAT_S", 3600.0)
    with monkeypatch.context() as patched:
        patched.setattr(store, "dispatch", fail)
        service.schedule()
        await asyncio.sleep(0)
        assert service.is_working()
        await asyncio.sleep(0)
        assert len(runs) == 4, "repeated too soon"
        service.schedule()
        await asyncio.sleep(0)
        assert service.is_working(), "both failures are of the same moment"
    store.close()
