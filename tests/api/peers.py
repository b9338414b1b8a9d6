"""Name servers and brokers of any number of clusters in one process, for an operator in another process.

`python -m tests.api.peers FOLDER` serves the clusters of `FOLDER/clusters.json`, each as [namespace, name, name
servers, groups, members of a group], on the addresses that `address_of` returns for their DNS names, and then writes
`FOLDER/serving`. While `FOLDER/silent-HOST` exists, this server accepts requests and does not respond.
`FOLDER/stored-HOST` contains by topic the number of messages in each queue of this broker.
`FOLDER/replication-HOST` contains the replication state that a broker reports; without it the name servers list the
broker as a master. Requests to change members or to transfer leadership are appended to `FOLDER/changes-HOST`, one line
each: the action, and the member if the request names one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from raptormq.protocol.bodies.route import BrokerData, ClusterInfo
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable, parse_attributes
from raptormq.protocol.bodies.unreadable import Unreadable, unreadable_to_dict
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.replication import (
    ChangeMembersRequestHeader,
    DescribeReplicationRequestHeader,
    TransferLeadershipRequestHeader,
)
from raptormq.protocol.headers.route import DeleteTopicRequestHeader
from raptormq.protocol.headers.topic import AllTopicsRequestHeader, CreateTopicRequestHeader, TopicRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router
from raptormq.transport.server import Server

NAME_SERVER_PORT, BROKER_PORT = 9876, 10911


def address_of(host: str) -> str:
    """Return the loopback address for a DNS name. It is the same in every process."""
    number = zlib.crc32(host.encode())
    return f"127.{1 + number % 250}.{1 + number // 250 % 250}.{1 + number // 62_500 % 250}"


def name_server(namespace: str, cluster: str, ordinal: int) -> str:
    service = f"{cluster}-namesrv"
    return f"{service}-{ordinal}.{service}.{namespace}.svc.cluster.local"


def broker(namespace: str, cluster: str, group: int, index: int = 0) -> str:
    return f"{cluster}-broker-{group}-{index}-0.{cluster}-broker-{group}.{namespace}.svc.cluster.local"


class Peer:
    """One server with its DNS name."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._silence = folder / f"silent-{host}"
        self._router = Router()
        self._server = Server(self._router, address_of(host), port)

    def on(self, code: int, header: Any, answer: Any) -> None:
        """Respond to requests of a code, unless the server is silent."""

        async def handle(_: Connection, asked: RemotingCommand, given: Any) -> RemotingCommand:
            while self._silence.exists():
                await asyncio.sleep(0.5)
            result: RemotingCommand = answer(asked, given)
            return result

        self._router.add(code, header, handle)

    async def start(self) -> None:
        await self._server.start()


def serve_name_server(peer: Peer, cluster: str, brokers: dict[str, list[str]], folder: Path) -> None:
    def listing(asked: RemotingCommand, _: None) -> RemotingCommand:
        groups = {name: BrokerData(cluster, name, addresses(hosts)) for name, hosts in brokers.items()}
        return response_to(asked, body=ClusterInfo(groups, {cluster: list(groups)}).to_json())

    def addresses(hosts: list[str]) -> dict[int, str]:
        roles = [json.loads(replication(folder, host) or b"{}").get("role", "master") for host in hosts]
        numbers = [0 if role in ("leader", "master") else index + 1 for index, role in enumerate(roles)]
        return {number: f"{host}:{BROKER_PORT}" for number, host in zip(numbers, hosts, strict=True)}

    peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, None, listing)
    peer.on(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader, lambda asked, _: response_to(asked))


def replication(folder: Path, host: str) -> bytes:
    """Return the replication state that a broker reports; empty without one."""
    file = folder / f"replication-{host}"
    return file.read_bytes() if file.exists() else b""


def serve_broker(peer: Peer, describe: Callable[[], bytes], changes: Path, stored: Path) -> None:
    topics: dict[str, TopicConfig] = {}

    def put(config: TopicConfig) -> None:
        before = topics.get(config.topic_name)
        names = {key.lstrip("+"): text for key, text in config.attributes.items()}
        config.attributes = (before.attributes if before else {}) | names
        topics[config.topic_name] = config

    def create_list(asked: RemotingCommand, _: None) -> RemotingCommand:
        for value in json.loads(asked.body)["topicConfigList"]:
            put(TopicConfig.from_dict(value))
        return response_to(asked)

    def create(asked: RemotingCommand, header: CreateTopicRequestHeader) -> RemotingCommand:
        attributes, _ = parse_attributes(header.attributes)
        put(
            TopicConfig(
                header.topic, header.read_queue_nums, header.write_queue_nums, header.perm, attributes=attributes
            )
        )
        return response_to(asked)

    def config(asked: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        found = topics.get(header.topic)
        if found is None:
            return response_to(asked, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return response_to(asked, body=found.to_json())

    def list_topics(asked: RemotingCommand, header: AllTopicsRequestHeader) -> RemotingCommand:
        body = TopicConfigTable(topics).to_dict()
        if header.with_unreadable and stored.exists():
            queues = json.loads(stored.read_bytes())
            beyond = {name: sum(counts[topics[name].read_queue_nums :]) for name, counts in queues.items()}
            body |= unreadable_to_dict({name: Unreadable(n, len(queues[name])) for name, n in beyond.items() if n})
        return response_to(asked, body=dumps(body))

    def delete(asked: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        topics.pop(header.topic, None)
        return response_to(asked)

    def note(asked: RemotingCommand, change: str) -> RemotingCommand:
        with changes.open("a") as file:
            file.write(f"{change}\n")
        return response_to(asked, body=describe())

    peer.on(RequestCode.GET_BROKER_RUNTIME_INFO, None, lambda asked, _: response_to(asked, body=b'{"table":{}}'))
    peer.on(RequestCode.GET_ALL_TOPIC_CONFIG, AllTopicsRequestHeader, list_topics)
    peer.on(
        RequestCode.DESCRIBE_REPLICATION,
        DescribeReplicationRequestHeader,
        lambda asked, _: response_to(asked, body=describe()),
    )
    peer.on(
        RequestCode.CHANGE_MEMBERS,
        ChangeMembersRequestHeader,
        lambda asked, header: note(asked, f"{header.action} {header.member}"),
    )
    peer.on(
        RequestCode.TRANSFER_LEADERSHIP,
        TransferLeadershipRequestHeader,
        lambda asked, header: note(asked, f"transfer {header.to or ''}"),
    )
    peer.on(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, create_list)
    peer.on(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader, create)
    peer.on(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader, config)
    peer.on(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader, delete)


async def serve(folder: Path) -> None:
    """Serve until SIGTERM."""
    for namespace, cluster, servers, groups, *more in json.loads((folder / "clusters.json").read_text()):
        members = range(*more or [1])
        hosts = {
            f"broker-{group}": [broker(namespace, cluster, group, index) for index in members]
            for group in range(groups)
        }
        for host in (host for group in hosts.values() for host in group):
            peer = Peer(folder, host, BROKER_PORT)
            serve_broker(
                peer, partial(replication, folder, host), folder / f"changes-{host}", folder / f"stored-{host}"
            )
            await peer.start()
        for ordinal in range(servers):
            peer = Peer(folder, name_server(namespace, cluster, ordinal), NAME_SERVER_PORT)
            serve_name_server(peer, cluster, hosts, folder)
            await peer.start()
    (folder / "serving").touch()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
