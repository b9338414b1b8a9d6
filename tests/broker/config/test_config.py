"""broker.conf: RocketMQ's keys, warnings and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.config import BrokerConfig, load_broker_config, warnings_for
from raptormq.broker.config.ignored_keys import IGNORED_KEYS
from raptormq.config_file import known_keys, parse_properties
from raptormq.errors import ConfigError
from tests.broker.harness import bodies, connected, running

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
    assert config.storage.flush_disk_type == "SYNC_FLUSH"
    assert config.storage.retention_hours == 48
    assert config.storage.segment_bytes == 64 << 20


def test_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns-0:9876;ns-1:9876")
    config = BrokerConfig.from_pairs({})
    assert config.identity.cluster_name == "DefaultCluster"
    assert config.identity.name_servers == "ns-0:9876;ns-1:9876"
    assert config.network.listen_port == 10_911
    assert config.policies.max_message_bytes == 4 << 20
    assert config.policies.default_queue_count == 8
    assert config.storage.segment_bytes == 1 << 30
    assert config.storage.queue_file_bytes == 6_000_000


def test_transfers_are_as_large_as_an_answer_at_most() -> None:
    pulling = BrokerConfig.from_pairs(
        {
            "maxTransferBytesOnMessageInMemory": "256M",
            "maxTransferBytesOnMessageInDisk": "64K",
            "maxTransferBytesAsked": "1G",
        }
    ).pulling
    assert (pulling.memory_bytes, pulling.disk_bytes, pulling.asked_bytes) == (15 << 20, 1 << 16, 8 << 20)


PUBLISHED_FOR_BATCHES = """\
enableBuildConsumeQueueConcurrently=true
maxTransferBytesOnMessageInMemory=256M
maxTransferCountOnMessageInMemory=32K
maxTransferBytesOnMessageInDisk=64M
maxTransferCountOnMessageInDisk=32K
"""


def test_the_published_lines_for_batches_have_an_effect(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(PUBLISHED_FOR_BATCHES, encoding="utf-8")
    config, warnings = load_broker_config(path)
    pulling, most = config.pulling, 15 << 20
    assert (pulling.memory_bytes, pulling.memory_count) == (most, 32_768)
    assert (pulling.disk_bytes, pulling.disk_count) == (most, 32_768)
    assert config.storage.concurrent_build
    assert warnings == [
        f"setting maxTransferBytesOnMessageIn{where} = '{size}' counts as {most}, because clients accept frames of 16M"
        for where, size in (("Memory", "256M"), ("Disk", "64M"))
    ]


async def test_a_broker_with_the_published_lines_answers_a_pull_with_thousands(tmp_path: Path) -> None:
    async with running(tmp_path, parse_properties(PUBLISHED_FOR_BATCHES)) as broker, connected(broker) as peer:
        assert broker._store.config.concurrent_build
        await peer.send_list("t", [b"%d" % number for number in range(2_000)])
        assert bodies(await peer.pull("t", 0, count=40_000)) == [b"%d" % number for number in range(2_000)]


@pytest.mark.parametrize(
    ("text", "number"),
    [("32K", 32 << 10), ("1m", None), ("32k", 32 << 10), ("976K", 976 << 10), ("7", 7), ("0", None), ("-1", None)]
    + [(text, None) for text in ("977K", "1G", "32KB", "K", "", "3.5K", "32 K")],
)
def test_counts_take_k_and_m(text: str, number: int | None) -> None:
    pairs = {"maxTransferCountOnMessageInMemory": text}
    if number is not None:
        assert BrokerConfig.from_pairs(pairs).pulling.memory_count == number
        return
    with pytest.raises(ConfigError, match=r"expected a whole number from 1 to 1000000, with K \(1024\) or M"):
        BrokerConfig.from_pairs(pairs)


def test_a_count_of_millions() -> None:
    assert BrokerConfig.from_pairs({"maxHashSlotNum": "5M"}).storage.index_slots == 5 << 20


def test_a_typing_error_is_warned_about_with_the_nearest_key() -> None:
    assert warnings_for({"flushDiskTyp": "SYNC_FLUSH"}) == [
        "unknown setting flushDiskTyp is ignored, did you mean flushDiskType?"
    ]


GROUP = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "RaftNode00",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
    "dLegerSelfId": "n1",
}

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": "127.0.0.1:9876"}


def test_a_slave_has_its_id_and_a_master_is_0() -> None:
    slave = BrokerConfig.from_pairs(SLAVE)
    assert (slave.identity.broker_id, slave.serves_slaves) == (1, False)
    assert BrokerConfig.from_pairs({"brokerRole": "SYNC_MASTER", "brokerId": "7"}).identity.broker_id == 0


@pytest.mark.parametrize(
    ("pairs", "serves"),
    [
        ({}, False),
        ({"brokerRole": "ASYNC_MASTER"}, True),
        ({"haListenPort": "10912"}, True),
        ({"brokerRole": "ASYNC_MASTER", "authenticationEnabled": "true"}, False),
        ({"brokerRole": "ASYNC_MASTER", "tls.server.mode": "enforcing", "tls.test.mode.enable": "true"}, False),
        ({"brokerRole": "SYNC_MASTER", "authenticationEnabled": "true", "haSlaveAddresses": "10.0.0.7"}, True),
    ],
)
def test_slaves_are_served_where_that_is_meant(pairs: dict[str, str], serves: bool) -> None:
    assert BrokerConfig.from_pairs(pairs).serves_slaves is serves


@pytest.mark.parametrize(
    ("pairs", "needed"),
    [({}, 0), ({"inSyncReplicas": "3"}, 0)]
    + [
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": str(copies)}, needed)
        for copies, needed in ((1, 1), (2, 1), (3, 2))
    ],
)
def test_how_many_slaves_a_sync_master_waits_for(pairs: dict[str, str], needed: int) -> None:
    assert BrokerConfig.from_pairs(pairs).ha.needed_slaves == needed


def test_a_member_of_a_group() -> None:
    settings = BrokerConfig.from_pairs(GROUP | {"preferredLeaderId": "n2"}).replication
    assert settings.addresses == {"n0": "127.0.0.1:40911", "n1": "127.0.0.1:40912", "n2": "127.0.0.1:40913"}
    assert settings.broker_id == 2
    assert warnings_for(GROUP) == []


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ({"brokerRole": "SLAVE"}, "brokerRole = SLAVE with brokerId = 0: expected a brokerId above 0"),
        ({"brokerRole": "SLAVE", "brokerId": "one"}, "brokerId = 'one' is not usable: expected"),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, "brokerRole = SLAVE needs namesrvAddr"),
        (SLAVE | {"haMasterAddress": "10.0.0.7"}, "setting haMasterAddress: '10.0.0.7' is not an address"),
        (SLAVE | {"authenticationEnabled": "true"}, "needs innerClientAuthenticationCredentials"),
        ({"haTransferBatchSize": "4M"}, "haTransferBatchSize = '4M' is not usable: expected a size in bytes from 1 to"),
        ({"inSyncReplicas": "0"}, "inSyncReplicas = '0' is not usable"),
        ({"haSlaveAddresses": "10.0.0.0/33"}, "expected addresses or networks such as 10.0.0.7,10.1.0.0/16"),
        *(
            (pairs | {"authenticationEnabled": "true"}, "needs haSlaveAddresses")
            for pairs in ({"brokerRole": "SYNC_MASTER"}, {"haListenPort": "10912"})
        ),
        *(
            ({key: value}, f"{key} = {value!r} is not supported by this version")
            for key in ("enableControllerMode", "aclEnable", "migrateAuthFromV1Enabled")
            for value in ("true", "True", "TRUE")
        ),
        *(
            ({key: value}, f"{key} = {value!r} is not usable: expected true or false")
            for key in ("enableDLegerCommitLog", "aclEnable", "authenticationEnabled", "tls.test.mode.enable")
            for value in ("yes", "1", "on", "tru")
        ),
        *(
            ({"brokerRole": role}, f"brokerRole = '{role}' is not usable: expected one of ASYNC_MASTER, SYNC_MASTER")
            for role in ("FOO", "", "async_master", "MASTER", "slave", "Slave", "sync_master")
        ),
        ({"flushDiskType": "sync_flush"}, "expected one of ASYNC_FLUSH, SYNC_FLUSH"),
        ({"tls.server.mode": "strict"}, "tls.server.mode = 'strict' is not usable"),
        ({"initAuthenticationUser": "{}"}, "initAuthenticationUser: invalid credentials"),
        ({"authenticationWhitelist": "a,b"}, "expected request codes separated by commas"),
        ({"brokerPermission": "7"}, "expected 2 (write), 4 (read) or 6 (both)"),
        ({"deleteWhen": "4;25"}, "expected hours from 00 to 23"),
        ({"storePathRootDir": ""}, "storePathRootDir = '' is not usable: expected a path"),
        ({"maxMessageSize": "1T"}, "maxMessageSize = '1T'"),
        ({"enableDLegerCommitLog": "true"}, "enableDLegerCommitLog = true needs dLegerGroup"),
        (GROUP | {"dLegerPeers": "n0-a:1;n1-b:1"}, "dLegerPeers has 2 members: expected an odd number"),
        (GROUP | {"dLegerPeers": ""}, "dLegerPeers has 0 members"),
        (GROUP | {"dLegerPeers": "n0-a:1;n1=b:1;n2-c:1"}, "'n1=b:1' is not of the form n0-host:port"),
        (GROUP | {"dLegerPeers": "n0-a:1;n1-b;n2-c:1"}, "'b' is not an address of the form host:port"),
        (GROUP | {"dLegerPeers": "n0-a:1;n0-b:1;n2-c:1"}, "duplicate entry 'n0-b:1'"),
        (GROUP | {"dLegerPeers": "n0-a:1;m0-b:1;n2-c:1"}, "two members have the same number"),
        (GROUP | {"dLegerSelfId": "n7"}, "dLegerSelfId = 'n7' is not in dLegerPeers: expected one of n0, n1, n2"),
        (GROUP | {"dLegerSelfId": ""}, "dLegerSelfId = '' is not in dLegerPeers"),
        (GROUP | {"preferredLeaderId": "n7"}, "preferredLeaderId = 'n7' is not in dLegerPeers"),
        (
            GROUP | {"dLegerLeaderAddress": "leader:10911"},
            "dLegerLeaderAddress and dLegerLeaderPort must be set together",
        ),
        (GROUP | {"dLegerLeaderPort": "10912"}, "dLegerLeaderAddress and dLegerLeaderPort must be set together"),
        (
            GROUP | {"dLegerLeaderAddress": "leader", "dLegerLeaderPort": "10912"},
            "setting dLegerLeaderAddress: 'leader' is not an address of the form host:port",
        ),
        (
            GROUP | {"dLegerLeaderAddress": "leader:10911", "dLegerLeaderPort": "10911"},
            "dLegerLeaderPort must differ from listenPort",
        ),
        (GROUP | {"dLegerElectionTimeout": "300"}, "less than twice dLegerHeartbeatInterval"),
        *(
            (GROUP | {"brokerRole": role}, f"brokerRole = {role} contradicts enableDLegerCommitLog = true")
            for role in ("SLAVE", "SYNC_MASTER")
        ),
        (GROUP | {"authenticationEnabled": "true"}, "needs innerClientAuthenticationCredentials"),
    ],
)
def test_refused_settings(pairs: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_pairs(pairs)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "pairs",
    [{"brokerRole": "ASYNC_MASTER"}, *({"enableDLegerCommitLog": value} for value in ("false", "False", "FALSE"))],
)
def test_the_harmless_value_of_a_refused_setting_passes(pairs: dict[str, str]) -> None:
    assert BrokerConfig.from_pairs(pairs) == BrokerConfig.from_pairs({})
    assert warnings_for(pairs) == []


def test_a_broker_that_enforces_tls_in_any_spelling_connects_by_it() -> None:
    for mode in ("enforcing", "ENFORCING"):
        config = BrokerConfig.from_pairs({"tls.server.mode": mode, "tls.test.mode.enable": "TRUE"})
        assert config.tls is not None
        assert config.tls.enforcing
        assert config.outgoing_tls is not None


def test_no_key_is_both_ours_and_foreign() -> None:
    assert known_keys(BrokerConfig) & IGNORED_KEYS == set()
