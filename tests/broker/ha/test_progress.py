"""A slave writes the progress of deliveries only when its log contains every copy that the progress counts."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from raptormq.broker.delay.progress import DelayProgress, delays_file
from raptormq.broker.delay.timer_progress import TimerProgress, TimerProgressFile
from raptormq.broker.ha import AcceptedCommits, MasterClient, SyncedTables, TableSync
from raptormq.broker.tables import GroupTable, RequestModeTable, TopicTable
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.storage.fs import RealFileSystem
from raptormq.storage.queue import ConsumerOffsets, offsets_file
from raptormq.storage.store import MessageStore


class Master:
    """A master with fixed responses."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def delays(self) -> tuple[dict[int, int], int | None]:
        self.asked.append("delays")
        return {1: 17}, None

    async def timers(self) -> tuple[int, int] | None:
        self.asked.append("timers")
        return 5_000, 9

    async def log_bounds(self) -> tuple[int, int]:
        self.asked.append("log_bounds")
        return 0, 100


class Log:
    """The slave's log. It records the offsets up to which a flush was requested."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.flushed: list[int] = []

    async def wait_flushed(self, end_offset: int) -> None:
        self.flushed.append(end_offset)


async def test_progress_waits_for_the_log(tmp_path: Path) -> None:
    delays = DelayProgress(delays_file(str(tmp_path / "delayOffset.json"), None), lambda: 1)
    timers_file = TimerProgressFile(RealFileSystem(), str(tmp_path / "timercheck"))
    offsets = ConsumerOffsets(offsets_file(str(tmp_path / "consumerOffset.json"), RealFileSystem()), lambda: 1)
    commits = AcceptedCommits(tmp_path, offsets, lambda _: None)
    topics, groups = TopicTable(TopicConfigTable(), lambda: 1), GroupTable(None, lambda: 1)
    tables = SyncedTables(topics, groups, delays, timers_file, RequestModeTable(), commits)
    master, log = Master(), Log()
    sync = TableSync(tables, cast("MessageStore", log), cast("MasterClient", master))
    log.end_offset = 99
    await sync.copy_progress()
    assert master.asked == ["delays", "timers", "log_bounds"], (
        "the end is requested last, so that the log up to it has every counted copy"
    )
    assert delays.offsets == {}
    assert not (tmp_path / "delayOffset.json").exists()
    log.end_offset = 100
    await sync.copy_progress()
    assert len(master.asked) == 3, "the progress that waited is written, not a newer one"
    assert log.flushed == [100], "after a power failure the progress must not count lost copies"
    assert delays.offsets == {1: 17}
    assert timers_file.load() == TimerProgress(5_000, 9, 0)
