"""Folders in which a broker cannot start: one clear line on standard error, exit code 2, and no change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.harness import SMALL, bodies, connected, running
from tests.faults.conftest import SmallVolume

RAPTORMQ = str(Path(sys.executable).with_name("raptormq"))
SEGMENT = 128 * 1024
BODY = b"x" * 10_000
PAIRS = {"mappedFileSizeCommitLog": str(SEGMENT)}


def start(tmp_path: Path, root: Path) -> subprocess.CompletedProcess[str]:
    """Run `raptormq broker` on a folder until it ends."""
    config = tmp_path / "broker.conf"
    pairs = SMALL | PAIRS | {"storePathRootDir": str(root)}
    config.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()), encoding="utf-8")
    return subprocess.run(
        [RAPTORMQ, "broker", "-c", str(config), "--log-level", "error"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complaint(result: subprocess.CompletedProcess[str]) -> str:
    """Return the only line on standard error."""
    assert result.returncode == 2, result
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


async def fill(root: Path, count: int = 40) -> None:
    async with running(root, PAIRS) as broker, connected(broker) as peer:
        for number in range(count):
            assert (await peer.send("t", b"%d:" % number + BODY)).code == 0


async def test_a_folder_in_use(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with running(root, PAIRS) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"before")).code == 0
        line = complaint(start(tmp_path, root))
        assert str(root) in line
        assert "another process" in line
        assert (await peer.send("t", b"after")).code == 0
        assert bodies(await peer.pull("t", 0)) == [b"before", b"after"]


async def test_a_missing_segment(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root)
    (root / "commitlog" / f"{SEGMENT:020d}").unlink()
    assert f"the commit log has no file for offset {SEGMENT}" in complaint(start(tmp_path, root))


async def test_a_segment_of_another_size(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(SEGMENT - 1)
    line = complaint(start(tmp_path, root))
    assert f"has only {SEGMENT - 1} of {SEGMENT} bytes, and records follow" in line


async def test_damaged_tables(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root, 1)
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_bytes(b'{"topicConfigTable":')
    assert "topics.json" in complaint(start(tmp_path, root))


@pytest.mark.parametrize(
    "name",
    [
        "topics.json",
        "subscriptionGroup.json",
        "consumerOffset.json",
        "delayOffset.json",
        "messageRequestMode.json",
        "timercheck",
        "users.json",
        "acls.json",
    ],
)
def test_a_folder_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "store" / "config" / name
    folder.mkdir(parents=True)
    line = complaint(start(tmp_path, tmp_path / "store"))
    assert "Is a directory" in line
    assert str(folder) in line


async def test_a_damaged_table_is_replaced_by_its_backup(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await fill(root, 1)
    await fill(root, 1)
    table = root / "config" / "topics.json"
    (root / "config" / "topics.json.bak").write_bytes(table.read_bytes())
    table.write_bytes(b"\0" * 100)
    async with running(root, PAIRS) as broker, connected(broker) as peer:
        assert len(bodies(await peer.pull("t", 0))) == 2


async def test_a_damaged_record_after_a_crash_costs_itself_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    await fill(root)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(15_000)
        file.write(b"\xff" * 100)
    (root / "abort").write_text("1", encoding="ascii")  # left by a crash
    (root / "checkpoint").unlink()  # so that the whole log is read
    async with running(root, PAIRS) as broker, connected(broker) as peer:
        found = [body.split(b":")[0] for body in bodies(await peer.pull("t", 0, count=100, maxMsgBytes=1 << 20))]
    assert "the commit log is damaged" in caplog.text
    assert found == [b"0", *(b"%d" % number for number in range(2, 40))]


async def test_a_volume_that_is_read_only(tmp_path: Path, small_volume: SmallVolume) -> None:
    root = small_volume.root / "store"
    await fill(root, 3)
    small_volume.make_read_only()
    line = complaint(start(tmp_path, root))
    assert str(root) in line
    assert "Read-only file system" in line or "Permission denied" in line


def test_an_unusable_setting(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("flushDiskType=NEVER\n", encoding="utf-8")
    result = subprocess.run(
        [RAPTORMQ, "broker", "-c", str(config)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "flushDiskType = 'NEVER' is not usable: expected one of ASYNC_FLUSH, SYNC_FLUSH" in complaint(result)
