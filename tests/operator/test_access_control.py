"""Access control of a cluster: enabled and disabled without a gap, with real servers on the operator's
configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.config.config import BrokerConfig
from raptormq.client import Credentials
from raptormq.errors import ServerError
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq_operator.admin import ClientAdmin
from raptormq_operator.manifests.config import (
    ADMIN_DIRECTORY,
    OPERATOR_DIRECTORY,
    broker_properties,
    denied_keys,
    name_server_properties,
)
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body
from tests.operator.test_reconcile_cluster import Operator

KEY = Credentials("raptormq-operator", "operator-password")


def cluster_with(**access: Any) -> Cluster:
    return Cluster.from_object(cluster_body(accessControl=access), SURROUNDINGS)


def mounted(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


@asynccontextmanager
async def servers(tmp_path: Path, cluster: Cluster) -> AsyncIterator[tuple[str, str]]:
    """Return the addresses of a name server and of a registered broker."""
    admin, own = tmp_path / "admin", tmp_path / "operator"
    mounted(admin, username="admin", password="admin-password")
    mounted(own, username=KEY.access_key, password=KEY.secret_key)

    def here(properties: dict[str, str]) -> dict[str, str]:
        places = {ADMIN_DIRECTORY: str(admin), OPERATOR_DIRECTORY: str(own)}
        return {key: places.get(value, value) for key, value in properties.items()} | {
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
        }

    state = {"kvConfigPath": str(tmp_path / "kv.json"), "authConfigPath": str(tmp_path / "auth")}
    properties = here(name_server_properties(cluster, authenticate=True)) | state
    name_server = NameServer(NameServerConfig.from_pairs(properties))
    await name_server.start()
    more = {
        "brokerIP1": "127.0.0.1",
        "metricsPort": "-1",
        "namesrvAddr": name_server.address,
        "storePathRootDir": str(tmp_path / "store"),
        "diskMaxUsedSpaceRatio": "95",
        "diskSpaceCleanForciblyRatio": "98",
        "diskSpaceWarningLevelRatio": "100",
    }
    broker = Broker(BrokerConfig.from_pairs(here(broker_properties(cluster, cluster.members[0])) | more))
    try:
        await broker.start()
        async with asyncio.timeout(20):
            await name_server.wait_for_broker(broker.address)
        yield name_server.address, broker.address
    finally:
        await broker.stop()
        await name_server.stop()


async def test_a_broker_registers_and_both_take_the_operators_signature(tmp_path: Path) -> None:
    cluster = cluster_with()
    async with servers(tmp_path, cluster) as (name_server, broker), ClientAdmin() as asking:
        signed = asking.speaking(None, (KEY,))
        assert await signed.listed_brokers(name_server) == {("demo", "broker-0", 0): broker}
        assert (await signed.figures(broker)).unknown_settings == ""
        with pytest.raises(ServerError, match="username cannot be null"):
            await asking.speaking(None).topics_digest(broker)
        wrong = Credentials(KEY.access_key, "wrong")
        with pytest.raises(ServerError, match="check signature failed"):
            await asking.speaking(None, (wrong,)).topics_digest(broker)
        assert await asking.speaking(None, (wrong, KEY)).topics_digest(broker), "the other password is accepted"


def test_settings_with_secrets_are_refused_in_config() -> None:
    secrets = {
        "initAuthenticationUser": "{}",
        "innerClientAuthenticationCredentials": "{}",
        "authenticationEnabled": "true",
    }
    cluster = Cluster.from_object(cluster_body(config=secrets, nameServers={"config": secrets}), SURROUNDINGS)
    names = [f"{where}config.{key} (spec.accessControl)" for where in ("", "nameServers.") for key in sorted(secrets)]
    assert list(denied_keys(cluster)) == sorted(names)


def signs(operator: Operator, name: str) -> bool:
    """Return whether the pods of a StatefulSet mount the Secrets."""
    workload = operator.kube.objects[("StatefulSet", NAMESPACE, name)]
    return any(volume["name"] == "operator-keys" for volume in workload["spec"]["template"]["spec"]["volumes"])


async def test_a_running_cluster_turns_it_on_broker_by_broker_and_then_the_name_servers() -> None:
    operator = Operator(groups=2)
    await operator.until_ready()
    everyone = ("demo-namesrv", "demo-broker-0-0", "demo-broker-1-0")
    seen: list[tuple[bool, ...]] = []

    async def change(access: dict[str, Any]) -> None:
        spec = {**operator.body["spec"], "accessControl": access}
        generation = operator.body["metadata"]["generation"] + 1
        operator.body["metadata"]["generation"] = generation
        operator.body = operator.kube.put({**operator.body, "spec": spec})
        seen.clear()
        for _ in range(8):
            await operator.turn()
            now = tuple(signs(operator, name) for name in everyone)
            if not seen or seen[-1] != now:
                seen.append(now)
            operator.kube.settle()
        assert operator.ready["reason"] == "Ready", operator.ready

    access = {"enabled": True, "authorization": True}
    await change(access)
    assert seen == [(False, True, False), (False, True, True), (True, True, True)]
    assert [key.access_key for key in operator.admin.keys] == ["raptormq-operator"]
    operator.kube.objects[("StatefulSet", NAMESPACE, "demo-broker-1-0")]["status"]["updatedReplicas"] = 0
    await operator.turn()
    assert signs(operator, "demo-namesrv"), "name servers are updated while a broker is down"
    await change(access | {"enabled": False})
    assert seen == [(False, True, True), (False, False, True), (False, False, False)]
    assert operator.admin.keys != (), "for servers that still require it"


async def test_a_refusal_is_told_apart_from_silence_and_holds_up_no_roll() -> None:
    operator = Operator(groups=2, accessControl={})
    await operator.until_ready()
    operator.admin.demanding = {member.address for member in operator.cluster.members}
    operator.admin.taken = {"random"}
    await operator.pulse()
    assert operator.ready["reason"] == "Ready", "it signs requests"
    operator.admin.taken = {"changed behind its back"}
    await operator.pulse()
    assert operator.ready["reason"] == "BrokerRefused"
    assert "check signature failed" in operator.ready["message"]
    assert operator.status["brokersReady"] == "2/2"
    down = operator.cluster.members[0].address
    operator.admin.down, operator.admin.demanding = {down}, set()
    await operator.pulse()
    assert operator.ready["reason"] == "BrokerUnreachable"


async def test_a_secret_that_cannot_be_used_is_the_condition_and_nothing_is_changed() -> None:
    operator = Operator(accessControl={})
    operator.kube.put(
        {"kind": "Secret", "metadata": {"name": "demo-admin", "namespace": NAMESPACE}, "data": {"username": "YQ=="}}
    )
    await operator.turn()
    assert operator.ready["reason"] == "SecretNotUsable"
    assert "Secret demo-admin has no password" in operator.ready["message"]
    assert operator.names("StatefulSet") == []


async def test_no_password_is_in_anything_that_the_operator_writes_but_the_secrets() -> None:
    operator = Operator(accessControl={})
    await operator.until_ready()
    for (kind, _, name), manifest in operator.kube.objects.items():
        assert kind == "Secret" or "random" not in str(manifest), (kind, name)
