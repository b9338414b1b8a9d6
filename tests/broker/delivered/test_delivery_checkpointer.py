"""The position from which a start reads the log to find deliveries, and its behaviour if the files are not reliable."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from raptormq.broker.delivered.origin import origin_field, origin_of
from raptormq.protocol.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from raptormq.storage.store import MessageStore
from tests.broker.harness import Peer, assembly_of, bodies, connected, copy_of_running, messages, running
from tests.client.eventually import eventually
from tests.clock import Clock

SETTINGS = {"messageDelayLevel": "1s 2s", "timerPrecisionMs": "100"}
KINDS = {b"level": "DELAY\x011\x02", b"timer": "TIMER_DELAY_MS\x011000\x02"}


async def deliver(peer: Peer, clock: Clock, known: int, *names: bytes) -> None:
    """Send messages of each kind, and wait until they are delivered after the ``known`` ones of the topic."""
    clock.hold()
    wanted = [b"%s %s" % (kind, name) for name in names for kind in KINDS]
    for body in wanted:
        assert (await peer.send("t", body, 0, KINDS[body.split()[0]])).code == 0
    clock.move(2_000)
    clock.run()
    found: list[bytes] = []
    while len(found) < len(wanted):
        found += bodies(await peer.pull("t", known + len(found), wait_ms=20_000))
    assert sorted(found) == sorted(wanted)


async def all_bodies(peer: Peer) -> list[bytes]:
    found: list[bytes] = []
    while (answer := await peer.pull("t", len(found))).code == 0:
        found += bodies(answer)
    return found


def progress(root: Path) -> dict[str, object]:
    loaded = json.loads((root / "config" / "delayOffset.json").read_bytes())
    assert isinstance(loaded, dict)
    del loaded["crc32"]  # for a writer with other numbers
    return loaded


async def test_a_copy_names_its_origin(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
        await deliver(peer, clock, 0, b"a")
        copies = {each.body: each for each in messages(await peer.pull("t", 0))}
        (delayed,) = messages(await peer.pull(SCHEDULE_TOPIC, 0))
        (timed,) = messages(await peer.pull(TIMER_TOPIC, 0))
        assert delayed.physical_offset == 0
        assert origin_of(copies[b"level a"].prepared_transaction_offset) == 0
        assert copies[b"timer a"].prepared_transaction_offset == timed.physical_offset > 0
        assert (delayed.prepared_transaction_offset, timed.prepared_transaction_offset) == (0, 0)


@pytest.mark.parametrize("place", [0, 1000, 1 << 50])
def test_a_place_is_told_from_none(place: int) -> None:
    assert origin_field(place) > 0
    assert origin_of(origin_field(place)) == place
    assert origin_of(0) is None


async def test_after_a_clean_stop_nothing_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
        await deliver(peer, clock, 0, b"a")
        await peer.send("t", b"plain")
        end = broker._store.end_offset
    assert progress(tmp_path)["logOffset"] == end
    monkeypatch.delattr(MessageStore, "scan_log")
    async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
        assert sorted(await all_bodies(peer)) == [b"level a", b"plain", b"timer a"]


async def test_a_start_saves_what_it_has_read(tmp_path: Path) -> None:
    """Frequent kills must not make each start read more than the last one."""
    clock, killed = Clock(), tmp_path / "killed"
    async with running(tmp_path / "first", SETTINGS, clock=clock) as broker, connected(broker) as peer:
        await deliver(peer, clock, 0, b"a")
        copy_of_running(tmp_path / "first", killed)
        end = broker._store.end_offset
    before = progress(killed)["logOffset"]
    assert isinstance(before, int)
    assert before < end
    async with running(killed, SETTINGS, clock=clock) as broker:
        await eventually(lambda: progress(killed)["logOffset"] == end)
        assert not any(each.needs_copies for each in assembly_of(broker).deliveries._others)
        assert progress(killed)["offsetTable"] == {"1": 1}


@pytest.mark.parametrize("damage", ["ahead", "lost", "timers lost", "not ours"])
async def test_what_the_log_tells_is_right_whatever_the_file_says(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
        await deliver(peer, clock, 0, b"a", b"b")
        clock.hold()
        await peer.send("t", b"level waits", 0, KINDS[b"level"])
        await peer.send("t", b"timer waits", 0, KINDS[b"timer"])
        end = broker._store.end_offset
    file = tmp_path / "config" / "delayOffset.json"
    saved = progress(tmp_path)
    if damage == "ahead":  # an older log has replaced the one for which this was saved
        file.write_text(json.dumps(saved | {"offsetTable": {"1": 3}, "logOffset": end + 1}))
    elif damage == "lost":
        for each in (file, file.with_name("delayOffset.json.bak")):
            each.unlink(missing_ok=True)
    elif damage == "timers lost":
        (tmp_path / "config" / "timercheck").unlink()
    else:  # Apache RocketMQ has used the store and saved its own fields
        file.write_text(json.dumps({"dataVersion": saved["dataVersion"], "offsetTable": {"1": 2}}))
    clock.move(2_000)
    clock.run()
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
            while len(found := await all_bodies(peer)) < 6:
                await peer.pull("t", len(found), wait_ms=1_000)
            end = broker._store.end_offset
    assert sorted(found) == sorted(b"%s %s" % (kind, name) for kind in KINDS for name in (b"a", b"b", b"waits"))
    assert progress(tmp_path) | {"dataVersion": 0} == {"dataVersion": 0, "offsetTable": {"1": 3}, "logOffset": end}
    assert ("scanning the whole log for deliveries" in caplog.text) is (damage == "ahead")
