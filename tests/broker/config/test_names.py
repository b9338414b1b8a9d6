"""Hosts, addresses and names in the settings of a broker."""

from __future__ import annotations

import pytest

from raptormq.broker.config import BrokerConfig
from raptormq.broker.config.names import address, host, name_servers, refused_names
from raptormq.errors import ConfigError

GROUP = {
    "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
}  # fmt: skip
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": "127.0.0.1:9876"}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (text, text)
        for text in (
            "127.0.0.1",
            "::1",
            "localhost",
            "rmq_broker",
            "orders-broker-0.orders-brokers.shop.svc.cluster.local",
            "ip-10-0-0-1.ec2.internal",
            "broker-a",
            "b",
            "a.b.",
            "host1.example.com",
            "yourbase.example.com",
            "x1",
            "0.0.0.0",
            "3com.example",
            "ipsec",
        )
    ]
    + [("[::1]", "::1"), ("[fd00::7]", "fd00::7")],
)
def test_host_names_and_addresses_of_users_are_accepted(text: str, meant: str) -> None:
    assert host(text) == meant
    assert BrokerConfig.from_pairs({"brokerIP1": text}).network.advertised_host == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1  # comment",
        "127.0.0.1 #comment",
        "10.0.0.1:10911",
        "http://10.0.0.1",
        "10.0.0.300",
        "10.0.0",
        "127.0.0.1.",
        "a b",
        "your_ip",
        "YOUR_IP",
        "your-public-ip",
        "server_ip",
        "ip",
        "IP",
        "xxx.xxx.xxx.xxx",
        "x.x.x.x",
        "192.168.1.x",
        "192.168.*.*",
        "<your-ip>",
        "${BROKER_IP}",
        "$IP",
        "{{ ip }}",
        "外网IP",
        "a,b",
        "-a",
        "a..b",
        "a/b",
        "[::1",
        "::g",
        "a" * 300,
    ],
)
def test_placeholders_and_comments_are_no_host(text: str) -> None:
    with pytest.raises(ConfigError, match=r"brokerIP1 = .* is not usable: expected a host name or an IP address"):
        BrokerConfig.from_pairs({"brokerIP1": text})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:9876",
        "ns-0:9876;ns-1:9876",
        " ns-0:9876 ; ns-1:9876; ",
        "[::1]:9876;rocketmq-namesrv:9876",
        "orders-namesrv-0.orders-namesrv.shop.svc:9876;orders-namesrv-1.orders-namesrv.shop.svc:9876",
    ],
)
def test_lists_of_name_servers_of_users_are_accepted(text: str) -> None:
    assert name_servers(text) == BrokerConfig.from_pairs({"namesrvAddr": text}).identity.name_servers == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10.0.0.7:9876,10.0.0.8:9876", ", not by commas"),
        ("http://10.0.0.7:9876", ", without http://"),
        ("10.0.0.7", ""),
        ("10.0.0.7:9876  # the name server", ""),
        ("10.0.0.7:9876;your_ip:9876", ""),
        ("10.0.0.7:9876 10.0.0.8:9876", ""),
        ("<namesrv>:9876", ""),
    ],
)
def test_other_lists_of_name_servers_are_refused_in_file_and_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    complaint = "expected host:port, or several separated by ; such as 10.0.0.7:9876;10.0.0.8:9876" + reason
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_pairs({"namesrvAddr": text})
    assert str(caught.value) == f"setting namesrvAddr = {text!r} is not usable: {complaint}"
    monkeypatch.setenv("NAMESRV_ADDR", text)
    with pytest.raises(ConfigError, match="setting NAMESRV_ADDR = "):
        BrokerConfig.from_pairs({})
    assert BrokerConfig.from_pairs({"namesrvAddr": "a:1"}).identity.name_servers == "a:1"


@pytest.mark.parametrize("bad", ["your_ip:40911", "x.x.x.x:40911", "a b:40911", "http://a:40911"])
@pytest.mark.parametrize(
    ("pairs", "key", "form"),
    [
        (GROUP, "dLegerPeers", "n0-{};n1-b:2;n2-c:3"),
        (GROUP | {"dLegerLeaderPort": "10912"}, "dLegerLeaderAddress", "{}"),
        (SLAVE, "haMasterAddress", "{}"),
    ],
)
def test_addresses_of_peers_are_checked(pairs: dict[str, str], key: str, form: str, bad: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {key}: .* is not an address of the form host:port"):
        BrokerConfig.from_pairs(pairs | {key: form.format(bad)})
    BrokerConfig.from_pairs(pairs | {key: form.format("[::1]:40911")})


def test_address_is_split_into_host_and_port() -> None:
    assert (address("[::1]:7"), address("broker-a.svc:10911")) == (("::1", 7), ("broker-a.svc", 10_911))


@pytest.mark.parametrize("key", ["bindAddress", "metricsPromExporterHost", "regionId", "configBlackList"])
def test_comment_behind_a_text_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {key} = .* expected a value without a comment"):
        BrokerConfig.from_pairs({key: "value  # comment"})


@pytest.mark.parametrize(
    "name", ["broker-a", "broker_a.example.com", "RaftNode00", "broker-10.0.0.7:10911", "a@b", "100%", "订单"]
)
def test_names_of_users_are_accepted(name: str) -> None:
    assert refused_names({"brokerName": name}) == []


@pytest.mark.parametrize(
    "name", ["", "a|b", "a b", "broker-a  # the first", "a;b", "a,b", "a/b", "${HOSTNAME}", "<name>", "a\x00", "a\x7f"]
)
def test_names_that_clients_and_tools_would_split_are_refused(name: str) -> None:
    (complaint,) = refused_names({"brokerName": name})
    assert complaint.startswith(f"setting brokerName = {name!r} is not usable as a name: expected no blanks")
