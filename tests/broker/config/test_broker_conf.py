"""Checks of broker.conf against the store at the start, and the warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.config import load_broker_config
from raptormq.errors import ConfigError


def warnings_of(tmp_path: Path, **pairs: str) -> list[str]:
    return load_broker_config(None, {"storePathRootDir": str(tmp_path / "store")} | pairs)[1]


@pytest.mark.parametrize(
    ("key", "pairs"),
    [
        ("brokerName", {}),
        ("brokerClusterName", {}),
        ("dLegerGroup", {
            "enableDLegerCommitLog": "true", "dLegerSelfId": "n0",
            "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
        }),
    ],
)  # fmt: skip
@pytest.mark.parametrize("used", ["config/topics.json", "commitlog/00000000000000000000"])
def test_name_is_refused_for_a_new_store_and_warned_of_for_an_existing_one(
    tmp_path: Path, key: str, pairs: dict[str, str], used: str
) -> None:
    with pytest.raises(ConfigError, match=rf"setting {key} = 'a\|b' is not usable as a name"):
        warnings_of(tmp_path, **pairs, **{key: "a|b"})
    path = tmp_path / "store" / used
    path.parent.mkdir(parents=True)
    with pytest.raises(ConfigError):
        warnings_of(tmp_path, **pairs, **{key: "a|b"})
    path.write_bytes(b"{}")
    (warning,) = warnings_of(tmp_path, **pairs, **{key: "a|b"})
    assert warning.startswith(f"setting {key} = 'a|b' is not usable as a name")
    assert warning.endswith("it is kept, because the store exists")


def test_commit_log_elsewhere_makes_a_store_an_existing_one(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "00000000000000000000").write_bytes(b"")
    assert len(warnings_of(tmp_path, brokerName="a b", storePathCommitLog=str(tmp_path / "log"))) == 1


def test_broker_id_without_the_role_of_a_slave_is_warned_of(tmp_path: Path) -> None:
    expected = (
        "setting brokerId = 1 has no effect: without brokerRole=SLAVE this broker is the master of broker-a, with id 0"
    )
    for more in ({}, {"brokerRole": "ASYNC_MASTER"}):
        assert warnings_of(tmp_path, brokerId="1", brokerName="broker-a", **more) == [expected]
    assert warnings_of(tmp_path, brokerId="0") == warnings_of(tmp_path, brokerId="-1") == []
    assert warnings_of(tmp_path, brokerId="1", brokerRole="SLAVE", namesrvAddr="a:1") == []


@pytest.mark.parametrize(
    ("key", "text", "value", "limits"),
    [
        ("diskMaxUsedSpaceRatio", "100", 95, "10 to 95"),
        ("diskMaxUsedSpaceRatio", "98", 95, "10 to 95"),
        ("diskMaxUsedSpaceRatio", "5", 10, "10 to 95"),
        ("diskSpaceCleanForciblyRatio", "100", 99, "30 to 99"),
        ("diskSpaceCleanForciblyRatio", "5", 30, "30 to 99"),
        ("diskSpaceWarningLevelRatio", "5", 35, "35 to 100"),
        ("diskSpaceWarningLevelRatio", "-1", 35, "35 to 100"),
        ("registerNameServerPeriod", "5000", 10_000, "10000 to 60000"),
        ("registerNameServerPeriod", "120000", 60_000, "10000 to 60000"),
        ("timerPrecisionMs", "10", 100, "100 to 60000"),
    ],
)
def test_value_that_rocketmq_clamps_is_clamped_with_a_warning(
    tmp_path: Path, key: str, text: str, value: int, limits: str
) -> None:
    expected = f"setting {key} = {text!r} counts as {value}, because the range is {limits}"
    assert warnings_of(tmp_path, **{key: text}) == [expected]
    config, _ = load_broker_config(None, {key: text})
    assert value in (
        config.storage.disk_used_percent_clean,
        config.storage.disk_used_percent_forced,
        config.storage.disk_used_percent_full,
        config.identity.register_period_ms,
        config.timers.precision_ms,
    )
    assert warnings_of(tmp_path, **{key: str(value)}) == []


@pytest.mark.parametrize("text", ["", "90%", "0.9", "many", "90 # percent"])
def test_text_that_is_no_number_is_refused_where_numbers_are_clamped(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"diskMaxUsedSpaceRatio = .* is not usable: expected a whole number"):
        warnings_of(tmp_path, diskMaxUsedSpaceRatio=text)


def test_housekeeping_that_is_not_above_the_heartbeat_is_raised_with_a_warning(tmp_path: Path) -> None:
    expected = "counts as 10000, because it must be above haSendHeartbeatInterval = 5000"
    for text, silence_ms in (("5000", 10_000), ("10", 10_000), ("5001", 5_001), ("20000", 20_000)):
        config, warnings = load_broker_config(
            None, {"haHousekeepingInterval": text, "storePathRootDir": str(tmp_path / "store")}
        )
        assert config.ha.silence_ms == silence_ms
        is_raised = int(text) != silence_ms
        assert warnings == [f"setting haHousekeepingInterval = {text} {expected}"] * is_raised


def queue_size(tmp_path: Path, **pairs: str) -> tuple[int, int]:
    """Return the size of queue files and the number of warnings."""
    config, warnings = load_broker_config(None, {"storePathRootDir": str(tmp_path / "store")} | pairs)
    return config.storage.queue_file_bytes, len(warnings)


def test_old_key_for_the_size_of_queue_files_counts_only_where_files_have_it(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "consumequeue" / "orders" / "0"
    old = {"mapedFileSizeConsumeQueue": "300001"}
    assert queue_size(tmp_path, **old) == (6_000_000, 1)
    folder.mkdir(parents=True)
    file = folder / "00000000000000000000"
    file.write_bytes(bytes(6_000))
    assert queue_size(tmp_path, **old) == (6_000_000, 1)
    assert "mapedFileSizeConsumeQueue has no effect" in warnings_of(tmp_path, **old)[0]
    file.write_bytes(bytes(300_020))  # rounded up to items of 20 bytes
    assert queue_size(tmp_path, **old) == (300_001, 0)
    assert queue_size(tmp_path, **old, mappedFileSizeConsumeQueue="40000") == (40_000, 0)
    with pytest.raises(ConfigError, match="mapedFileSizeConsumeQueue = '1' is not usable"):
        queue_size(tmp_path, mapedFileSizeConsumeQueue="1")
