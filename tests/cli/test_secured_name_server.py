"""`raptormq namesrv` and `raptormq broker` as processes with access control: no other client can register a broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool

Run = Callable[..., subprocess.CompletedProcess[bytes]]
Serve = Callable[..., AbstractContextManager[Any]]

ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": '{"accessKey": "inner", "secretKey": "inner-secret"}',
}
SIGNED = ("--access-key", "inner", "--secret-key", "inner-secret")


def conf(folder: Path, name: str, pairs: dict[str, str]) -> str:
    path = folder / name
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return str(path)


def name_server_conf(folder: Path, **more: str) -> str:
    return conf(
        folder,
        "namesrv.conf",
        ACCESS
        | {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(folder / "kv.json"),
            "authConfigPath": str(folder / "auth"),
        }
        | more,
    )


def broker_conf(folder: Path, name: str, name_server: str, **more: str) -> str:
    pairs = {
        "brokerName": name,
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "metricsPort": "-1",
        "namesrvAddr": name_server,
        "storePathRootDir": str(folder / name),
        "mappedFileSizeCommitLog": "1M",
        "diskMaxUsedSpaceRatio": "95",
        "diskSpaceCleanForciblyRatio": "98",
        "diskSpaceWarningLevelRatio": "100",
    }
    return conf(folder, f"{name}.conf", pairs | more)


def asked(address: str, code: int, fields: dict[str, str]) -> RemotingCommand:
    """Return the response to an unsigned request."""

    async def ask() -> RemotingCommand:
        pool = ConnectionPool()
        try:
            return await pool.request(address, RemotingCommand(code, fields), 30)
        finally:
            await pool.close()

    return asyncio.run(ask())


def test_a_broker_that_signs_is_registered_and_keeps_its_place(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    with serving("namesrv", "-c", name_server_conf(tmp_path)) as server:
        name_server = server.address("namesrv")
        with serving("broker", "-c", broker_conf(tmp_path, "broker-a", name_server, **ACCESS)) as broker:
            theft = {
                "brokerName": "broker-a", "brokerAddr": "127.0.0.1:9", "clusterName": "DefaultCluster",
                "haServerAddr": "127.0.0.1:10", "brokerId": "0",
            }  # fmt: skip
            for code in (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER):
                answer = asked(name_server, code, theft | {"brokerAddr": broker.address("broker")})
                assert answer.code == ResponseCode.NO_PERMISSION
            assert asked(name_server, RequestCode.REGISTER_BROKER, theft).code == ResponseCode.NO_PERMISSION
            shown = json.loads(raptormq("cluster", "describe", "-o", "json", "-n", name_server, *SIGNED).stdout)
            assert broker.address("broker") in json.dumps(shown)
            assert "127.0.0.1:9" not in json.dumps(shown)
            # Signed commands of the command line administer both. Unsigned ones report the missing option.
            made = raptormq("topic", "create", "orders", "-n", name_server, *SIGNED)
            assert made.returncode == 0, made.stderr
            assert b"orders" in raptormq("topic", "list", "-n", name_server, *SIGNED).stdout
            refused = raptormq("topic", "list", "-n", name_server)
            assert refused.returncode == 5
            assert refused.stderr.count(b"\n") == 1
            assert b"username cannot be null." in refused.stderr
            assert raptormq("topic", "delete", "orders", "--yes", "-n", name_server, *SIGNED).returncode == 0


def test_our_programs_sign_fully(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    demanding = ACCESS | {"demandFullSignature": "true"}
    with serving("namesrv", "-c", name_server_conf(tmp_path, demandFullSignature="true")) as server:
        name_server = server.address("namesrv")
        with serving("broker", "-c", broker_conf(tmp_path, "broker-a", name_server, **demanding)):
            for command in (["topic", "create", "orders"], ["topic", "list"], ["produce", "orders"]):
                done = raptormq(*command, "-n", name_server, *SIGNED, stdin=b"first\nsecond\n")
                assert done.returncode == 0, done.stderr
            consumed = raptormq("consume", "orders", "--from", "earliest", "--max", "2", "-n", name_server, *SIGNED)
            assert sorted(consumed.stdout.split()) == [b"first", b"second"], consumed.stderr


def test_a_broker_without_credentials_says_why_nobody_finds_it(serving: Serve, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        serving("namesrv", "-c", name_server_conf(tmp_path)) as server,
        log.open("w") as stderr,
        serving("broker", "-c", broker_conf(tmp_path, "broker-b", server.address("namesrv")), stderr=stderr),
    ):
        answer = asked(server.address("namesrv"), RequestCode.GET_BROKER_CLUSTER_INFO, {})
        assert b"broker-b" not in answer.body
    assert f"name server {server.address('namesrv')} refuses the registration" in log.read_text()
    assert "innerClientAuthenticationCredentials" in log.read_text()


def test_dev_secures_its_name_server_too(serving: Serve, tmp_path: Path) -> None:
    pairs = ACCESS | {"initAuthenticationUser": '{"username": "root", "password": "root-secret"}'}
    del pairs["innerClientAuthenticationCredentials"]  # then the broker signs as the first user
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "-1"]
    settings = conf(tmp_path, "broker.conf", pairs)
    with serving("dev", "-c", settings, "--data-dir", str(tmp_path / "data"), *ports) as server:
        fields = {"namespace": "n", "key": "k", "value": "v"}
        assert asked(server.address("namesrv"), RequestCode.PUT_KV_CONFIG, fields).code == ResponseCode.NO_PERMISSION
