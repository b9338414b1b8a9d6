"""broker.conf: RocketMQ's keys, what is warned about and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.config import BrokerConfig, load_broker_config, warnings_for
from raptormq.broker.foreign_keys import FOREIGN_KEYS
from raptormq.config_file import known_keys
from raptormq.errors import ConfigError

SAMPLE = """
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
mapedFileSizeCommitLog=64M
storePathRootDir=/data/store
sendMessageThreadPoolNums=4
"""


def test_the_sample_file_of_apache_rocketmq_loads_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(SAMPLE, encoding="utf-8")
    config, warnings = load_broker_config(path, {"listenPort": "0"})
    assert warnings == []
    assert config.identity.broker_name == "broker-a"
    assert config.network.listen_port == 0
    assert config.keeping.flush_disk_type == "SYNC_FLUSH"
    assert config.keeping.retention_hours == 48
    assert config.keeping.segment_bytes == 64 << 20


def test_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns-0:9876;ns-1:9876")
    config = BrokerConfig.from_pairs({})
    assert config.identity.cluster_name == "DefaultCluster"
    assert config.identity.name_servers == "ns-0:9876;ns-1:9876"
    assert config.network.listen_port == 10_911
    assert config.policies.max_message_bytes == 4 << 20
    assert config.policies.default_queue_count == 8
    assert config.keeping.segment_bytes == 1 << 30
    assert config.keeping.queue_file_bytes == 6_000_000


def test_transfers_are_as_large_as_an_answer_at_most() -> None:
    pulling = BrokerConfig.from_pairs(
        {
            "maxTransferBytesOnMessageInMemory": "256M",
            "maxTransferBytesOnMessageInDisk": "64K",
            "maxTransferBytesAsked": "1G",
        }
    ).pulling
    assert (pulling.memory_bytes, pulling.disk_bytes, pulling.asked_bytes) == (15 << 20, 1 << 16, 8 << 20)


def test_a_typing_error_is_warned_about_with_the_nearest_key() -> None:
    assert warnings_for({"flushDiskTyp": "SYNC_FLUSH"}) == [
        "unknown setting flushDiskTyp is ignored, did you mean flushDiskType?"
    ]


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ({"brokerRole": "SLAVE"}, "brokerRole = 'SLAVE' is not supported by this version"),
        ({"enableDLegerCommitLog": "true"}, "enableDLegerCommitLog"),
        ({"migrateAuthFromV1Enabled": "true"}, "migrateAuthFromV1Enabled"),
        ({"initAuthenticationUser": "{}"}, "initAuthenticationUser: its credentials are not usable"),
        ({"authenticationWhitelist": "a,b"}, "expected request codes separated by commas"),
        ({"brokerPermission": "7"}, "expected 2 (write), 4 (read) or 6 (both)"),
        ({"deleteWhen": "4;25"}, "expected hours from 00 to 23"),
        ({"storePathRootDir": ""}, "storePathRootDir = '' is not usable: expected a path"),
        ({"maxMessageSize": "1T"}, "maxMessageSize = '1T'"),
    ],
)
def test_refused_settings(pairs: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_pairs(pairs)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("pairs", [{"brokerRole": "ASYNC_MASTER"}, {"enableDLegerCommitLog": "false"}])
def test_the_harmless_value_of_a_refused_setting_passes(pairs: dict[str, str]) -> None:
    assert BrokerConfig.from_pairs(pairs) == BrokerConfig.from_pairs({})
    assert warnings_for(pairs) == []


def test_no_key_is_both_ours_and_foreign() -> None:
    assert known_keys(BrokerConfig) & FOREIGN_KEYS == set()
