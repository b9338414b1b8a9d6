"""Servers with the operator's configuration for TLS, and the operator's requests to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cryptography import x509

from raptormq.broker.broker import Broker
from raptormq.broker.config.config import BrokerConfig
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq_operator.admin import ClientAdmin
from raptormq_operator.manifests.config import TLS_DIRECTORY, broker_properties, name_server_properties
from raptormq_operator.model.cluster import Cluster
from tests.certificates import Authority
from tests.operator.resources import SURROUNDINGS, cluster_body

HERE = {"bindAddress": "127.0.0.1", "listenPort": "0", "metricsPort": "-1"}


@pytest.mark.parametrize(
    ("mode", "client_auth"),
    [("permissive", "none"), ("enforcing", "none"), ("enforcing", "optional"), ("enforcing", "require")],
)
async def test_a_broker_registers_and_both_answer_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, client_auth: str
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    authority = Authority(tmp_path, "authority")
    issued, shown = authority.issue("servers"), authority.issue("operator")
    issued.cert.rename(secret / "tls.crt")
    issued.key.rename(secret / "tls.key")
    authority.cert.rename(secret / "ca.crt")
    if client_auth == "require":  # set by the chart
        files = {"CERT": shown.cert, "KEY": shown.key, "CA": secret / "ca.crt"}
        for name, path in files.items():
            monkeypatch.setenv(f"RAPTORMQ_TLS_{name}", str(path))
    body = cluster_body(tls={"secretName": "certificate", "mode": mode, "clientAuth": client_auth})
    cluster = Cluster.from_object(body, SURROUNDINGS)

    def here(properties: dict[str, str]) -> dict[str, str]:
        return {key: value.replace(TLS_DIRECTORY, str(secret)) for key, value in properties.items()} | HERE

    state = {"kvConfigPath": str(tmp_path / "kv.json")}
    name_server = NameServer(NameServerConfig.from_pairs(here(name_server_properties(cluster)) | state))
    await name_server.start()
    own = {
        "brokerIP1": "127.0.0.1",
        "metricsPort": "-1",
        "namesrvAddr": name_server.address,
        "storePathRootDir": str(tmp_path / "store"),
        "diskMaxUsedSpaceRatio": "95",
        "diskSpaceCleanForciblyRatio": "98",
        "diskSpaceWarningLevelRatio": "100",
    }
    broker = Broker(BrokerConfig.from_pairs(here(broker_properties(cluster, cluster.members[0])) | own))
    await broker.start()
    async with asyncio.timeout(20):
        await name_server.wait_for_broker(broker.address)
    async with ClientAdmin() as asking:
        admin = asking.speaking(cluster.tls)
        assert await admin.listed_brokers(name_server.address) == {("demo", "broker-0", 0): broker.address}
        figures = await admin.figures(broker.address)
        assert (figures.unknown_settings, figures.max_offset) == ("", 0)
        ends = x509.load_pem_x509_certificate((secret / "tls.crt").read_bytes()).not_valid_after_utc
        assert await admin.certificate_end(broker.address) == ends
        assert await asking.speaking(None).certificate_end(broker.address) is None
    await broker.stop()
    await name_server.stop()
