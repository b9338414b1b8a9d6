"""Registration with name servers, against a fake that records the requests."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from raptormq.broker import broker as service
from raptormq.broker import registration
from raptormq.broker.registration import parse_name_servers
from raptormq.errors import ConfigError
from raptormq.protocol.bodies.route import decode_registration
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.route import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from raptormq.protocol.schema import decode_header
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router
from raptormq.transport.server import Server
from tests.broker.harness import assembly_of, connected, running


class NameServer:
    """A name server that accepts registrations, and refuses them while :attr:`refusing`."""

    def __init__(self, port: int = 0) -> None:
        self.registrations: asyncio.Queue[tuple[RegisterBrokerRequestHeader, TopicConfigTable]] = asyncio.Queue()
        self.farewells: list[UnregisterBrokerRequestHeader] = []
        self.refusing = False
        self.refused = 0
        router = Router()
        router.add(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, self.register)
        router.add(RequestCode.UNREGISTER_BROKER, UnregisterBrokerRequestHeader, self.unregister)
        self.server = Server(router, "127.0.0.1", port)

    async def started(self) -> NameServer:
        await self.server.start()
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def register(self, _: Connection, command: RemotingCommand, header: RegisterBrokerRequestHeader) -> RemotingCommand:
        if self.refusing:
            self.refused += 1
            raise Refused(ResponseCode.SYSTEM_ERROR, "not now")
        self.registrations.put_nowait((header, decode_registration(command.body)))
        return response_to(command)

    def unregister(
        self, _: Connection, command: RemotingCommand, header: UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        self.farewells.append(header)
        return response_to(command)

    async def next(self) -> tuple[RegisterBrokerRequestHeader, TopicConfigTable]:
        return await asyncio.wait_for(self.registrations.get(), 20)


async def test_a_broker_is_announced_when_its_name_servers_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PROPAGATION_TIMEOUT_S", 600.0)
    asked, may_answer = asyncio.Event(), asyncio.Event()

    class Slow(NameServer):
        async def register(  # type: ignore[override]
            self, connection: Connection, command: RemotingCommand, header: RegisterBrokerRequestHeader
        ) -> RemotingCommand:
            asked.set()
            await may_answer.wait()
            return super().register(connection, command, header)

    server = await Slow().started()
    async with running(tmp_path, {"namesrvAddr": server.address}) as broker:
        announced = asyncio.ensure_future(broker.registered())
        await asked.wait()
        await asyncio.sleep(0)  # it has started to wait
        assert not announced.done()
        may_answer.set()
        await announced
        assert assembly_of(broker).registrar.registered_count == 1
    await server.server.stop()


async def test_a_broker_announces_itself_and_says_goodbye(tmp_path: Path) -> None:
    one, two = await NameServer().started(), await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": f"{one.address};{two.address}"}) as broker:
        for server in (one, two):
            header, table = await server.next()
            assert header == decode_header(
                RegisterBrokerRequestHeader,
                {
                    "brokerName": "broker-a",
                    "brokerAddr": f"127.0.0.1:{broker.port}",
                    "clusterName": "DefaultCluster",
                    "haServerAddr": f"127.0.0.1:{broker.port + 1}",
                    "brokerId": "0",
                    "completeTopicTable": "true",
                },
            )
            assert {"TBW102", "broker-a", "DefaultCluster"} <= table.topics.keys()
            assert table.data_version.counter > 0
        address = broker.address
    for server in (one, two):
        assert [(header.broker_name, header.broker_addr) for header in server.farewells] == [("broker-a", address)]
        await server.server.stop()


class Thoughtful(NameServer):
    """A name server that responds to registrations only after an unregistration has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = asyncio.Event()

    async def register(  # type: ignore[override]
        self, _: Connection, command: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> RemotingCommand:
        answer = super().register(_, command, header)
        await self._heard.wait()
        return answer

    def unregister(
        self, _: Connection, command: RemotingCommand, header: UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        self._heard.set()
        return super().unregister(_, command, header)


async def test_a_broker_says_goodbye_also_to_a_name_server_that_has_not_answered_yet(tmp_path: Path) -> None:
    server = Thoughtful()
    await server.started()
    async with running(tmp_path, {"namesrvAddr": server.address}):
        await server.next()
    await server.server.stop()
    assert len(server.farewells) == 1


async def test_a_new_topic_is_known_to_the_name_server_before_its_creation_is_answered(tmp_path: Path) -> None:
    server = await NameServer().started()
    fields: dict[str, object] = {
        "topic": "t",
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    async with running(tmp_path, {"namesrvAddr": server.address}) as broker, connected(broker) as peer:
        _, everything = await server.next()
        await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        _, table = server.registrations.get_nowait()
    assert list(table.topics) == ["t"]
    assert table.data_version.counter == everything.data_version.counter + 1
    await server.server.stop()


async def test_a_topic_that_appears_during_a_registration_gets_a_version_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": server.address}) as broker, connected(broker) as peer:
        await server.next()
        resolve = registration._resolve

        async def resolve_while_a_topic_appears(host: str, port: int) -> list[str]:
            monkeypatch.setattr(registration, "_resolve", resolve)
            await peer.send("second", b"x")
            return await resolve(host, port)

        monkeypatch.setattr(registration, "_resolve", resolve_while_a_topic_appears)
        await peer.send("first", b"x")
        tables = [(await server.next())[1], (await server.next())[1]]
    assert [list(table.topics) for table in tables] == [["first"], ["second"]]
    # A name server ignores a registration with the version of the previous one.
    assert tables[0].data_version != tables[1].data_version
    await server.server.stop()


async def test_an_auto_created_topic_is_registered_at_once(tmp_path: Path) -> None:
    server = await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": server.address}) as broker, connected(broker) as peer:
        await server.next()
        await peer.send("t", b"x")
        _, table = await server.next()
    assert list(table.topics) == ["t"]
    await server.server.stop()


async def test_permissions_of_the_broker_limit_those_of_its_topics(tmp_path: Path) -> None:
    server = await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": server.address, "brokerPermission": "4"}):
        _, table = await server.next()
    assert {config.perm & 6 for config in table.topics.values() if config.perm & 6} == {4}
    await server.server.stop()


async def test_a_changed_permission_is_registered_at_once(tmp_path: Path) -> None:
    server = await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": server.address}) as broker, connected(broker) as peer:
        await server.next()
        versions = set()
        for permission in ("4", "6"):
            assert (await peer.call(25, None, f"brokerPermission={permission}".encode())).code == 0
            _, table = server.registrations.get_nowait()  # before the response
            assert {config.perm & 6 for config in table.topics.values() if config.perm & 6} == {int(permission)}
            versions.add(str(table.data_version.to_dict()))
        assert len(versions) == 2  # otherwise the name server would ignore the second registration
    await server.server.stop()


async def test_a_name_server_that_comes_late_is_found(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptormq.broker.registration.RETRY_S", 0.01)
    async with running(tmp_path, {"namesrvAddr": f"127.0.0.1:{free_port}"}):
        late = await NameServer(free_port).started()
        await late.next()
    await late.server.stop()


async def test_a_name_server_that_restarts_is_told_everything_at_once(tmp_path: Path, free_port: int) -> None:
    first = await NameServer(free_port).started()
    async with running(tmp_path, {"namesrvAddr": first.address}):
        await first.next()
        await first.server.stop()
        second = NameServer(free_port)
        await second.started()
        _, table = await second.next()
    assert {"TBW102", "broker-a"} <= table.topics.keys()
    await second.server.stop()


async def test_a_refusal_is_tried_again_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("raptormq.broker.registration.RETRY_S", 0.01)
    server = await NameServer().started()
    server.refusing = True
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, {"namesrvAddr": server.address}):
            while server.refused < 5:
                await asyncio.sleep(0)
            server.refusing = False
            await server.next()
    assert caplog.text.count(f"name server {server.address} refuses the registration: not now") == 1
    await server.server.stop()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 64])
async def test_a_name_that_cannot_be_resolved_does_not_stop_the_others(tmp_path: Path, name: str) -> None:
    server = await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": f"{name}:9876;{server.address}"}), asyncio.timeout(10):
        await server.next()
    await server.server.stop()


async def test_a_name_is_resolved_to_one_family(tmp_path: Path) -> None:
    server = await NameServer().started()
    async with running(tmp_path, {"namesrvAddr": f"localhost:{server.server.port}"}) as broker:
        await server.next()
        assembly = assembly_of(broker)
        while not assembly.registrar.registered_count:
            await asyncio.sleep(0)
        assert assembly.registrar.registered_count == 1
    await server.server.stop()


def test_lists_of_name_servers() -> None:
    assert parse_name_servers(" a:1; [::1]:2 ;;") == [("a", 1), ("::1", 2)]
    assert parse_name_servers("") == []
    with pytest.raises(ConfigError, match="'a' is not an address"):
        parse_name_servers("a;b:1")


async def test_a_name_server_that_does_not_answer_holds_up_nobody(tmp_path: Path) -> None:
    """The registration may take its whole time limit, 24 s. The other name server gets new topics immediately."""
    asked = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            asked.set()
        writer.close()

    frozen = await asyncio.start_server(swallow, "127.0.0.1", 0)
    good = await NameServer().started()
    addresses = f"127.0.0.1:{frozen.sockets[0].getsockname()[1]};{good.address}"
    async with running(tmp_path, {"namesrvAddr": addresses}) as broker, connected(broker) as peer:
        await good.next()
        await asyncio.wait_for(asked.wait(), 20)
        for topic in ("first", "second"):
            await peer.send(topic, b"x")
            async with asyncio.timeout(10):
                while topic not in (await good.next())[1].topics:
                    pass
    frozen.close()
    await good.server.stop()


async def test_only_those_are_told_everything_again_that_have_missed_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_S", 0.05)
    good, bad = await NameServer().started(), await NameServer().started()
    bad.refusing = True
    async with running(tmp_path, {"namesrvAddr": f"{good.address};{bad.address}"}) as broker, connected(broker) as peer:
        await good.next()
        await peer.send("new", b"x")
        assert (await good.next())[1].topics.keys() == {"new"}
        bad.refusing = False
        assert {"new", "TBW102"} <= (await bad.next())[1].topics.keys()
        assert good.registrations.empty()
    await good.server.stop()
    await bad.server.stop()
