"""A process or a disk that does not belong to a group of real processes: it causes one log line and a metric, and no
data changes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker.replication.codec import encode_head
from raptormq.client import AdminClient, Message, Producer, ProducerConfig
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.protocol.signing import Credentials
from raptormq.raft import Append, Position, VoteRequest
from raptormq.raft import Message as RaftMessage
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import saved
from tests.faults.broker_process import serving
from tests.faults.dledger_processes import BROKER, PATIENCE_S, DledgerProcesses, dledger_group
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)

TOPIC = "kept"
LOOK_S = 0.05
KEYS = Credentials("inner", "inner-secret")
ACCESS = (
    "authenticationEnabled=true\nauthorizationEnabled=true\n"
    f"innerClientAuthenticationCredentials={json.dumps({'accessKey': KEYS.access_key, 'secretKey': KEYS.secret_key})}\n"
)


@asynccontextmanager
async def admin_of(processes: DledgerProcesses, credentials: Credentials | None = None) -> AsyncIterator[AdminClient]:
    admin = AdminClient(client_config=processes.clients(credentials))
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def send(processes: DledgerProcesses, count: int = 50) -> None:
    async with Producer(
        "senders", name_servers=processes.name_server, config=ProducerConfig(send_timeout=PATIENCE_S)
    ) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number))


async def shows(processes: DledgerProcesses, admin: AdminClient, member: str, text: str) -> None:
    """Wait until a member shows a conflict."""
    while text not in (await admin.runtime_info(processes.address(member))).get("dledgerConflict", ""):
        await asyncio.sleep(LOOK_S)
    assert await processes.metric(member, "replication_conflict") == 1


async def conflict_at(processes: DledgerProcesses, admin: AdminClient, member: str, text: str) -> None:
    """Wait until a member tells of a conflict, by its status, its metric and one line of its log."""
    await shows(processes, admin, member, text)
    assert processes.log(member).count(text) == 1


def log_bytes(processes: DledgerProcesses, member: str) -> dict[str, bytes]:
    """Return the commit log of a member, without the zeros at the end of each file."""
    folder = processes.root(member) / "commitlog"
    return {path.name: path.read_bytes().rstrip(b"\0") for path in sorted(folder.iterdir()) if path.is_file()}


def still_has(processes: DledgerProcesses, member: str, before: dict[str, bytes]) -> bool:
    """Return whether a member has all bytes of its log. Its leader may have appended to them."""
    after = log_bytes(processes, member)
    return all(after[name].startswith(data) for name, data in before.items())


def follower_of(processes: DledgerProcesses, leader: str) -> str:
    return next(member for member in processes.ports if member != leader)


async def formed(processes: DledgerProcesses, admin: AdminClient) -> str:
    """Wait until all members follow a leader, and return its id."""
    leader = await processes.leader(admin)
    for member in processes.ports:
        await processes.probed(member, "/replication/caught-up")
    return leader


async def test_the_disk_of_another_group_is_left_alone(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes, admin_of(processes) as admin:
        await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        await send(processes)
        for member in processes.ports:
            await processes.stop(member)
        foreign = tmp_path / "foreign"
        shutil.copytree(processes.root("n2"), foreign)
        for member in processes.ports:
            processes.wipe(member)
        await asyncio.gather(*map(processes.start, processes.ports))
        leader = await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        taken = follower_of(processes, leader)
        processes.kill(taken)
        processes.wipe(taken)
        shutil.copytree(foreign, processes.root(taken))
        kept = log_bytes(processes, taken)
        await processes.start(taken)
        await conflict_at(processes, admin, leader, "cannot join with data of another group: its disk must be empty")
        await send(processes)  # the other two continue
        assert log_bytes(processes, taken) == kept


async def test_an_older_copy_of_a_disk_takes_no_part(tmp_path: Path) -> None:
    """Under a leader that was elected after the copy, after the restart of all members, and at each of its starts."""
    async with dledger_group(tmp_path) as processes, admin_of(processes) as admin:
        leader = await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        taken = follower_of(processes, leader)
        others = [member for member in processes.ports if member != taken]
        processes.kill(taken)
        older = tmp_path / "older"
        shutil.copytree(processes.root(taken), older)
        await processes.start(taken)
        await processes.probed(taken, "/replication/caught-up")
        await send(processes)
        end = int((await admin.runtime_info(processes.address(taken)))["commitLogMaxOffset"])
        for member in others:
            await promised(processes, member, taken, end)
        processes.kill(taken)
        processes.wipe(taken)
        shutil.copytree(older, processes.root(taken))
        for member in others:
            processes.kill(member)
        await asyncio.gather(*map(processes.start, others))
        leader = await processes.leader(admin)
        kept = log_bytes(processes, taken)
        for _ in range(3):
            await processes.start(taken)
            own = (await admin.runtime_info(processes.address(taken)))["dledgerDisk"]
            await conflict_at(processes, admin, leader, f"the disk of {taken} is an older copy of itself")
            await shows(processes, admin, taken, "the disk of this member is an older copy of itself")
            await send(processes)
            assert log_bytes(processes, taken) == kept
            processes.kill(taken)
        processes.wipe(taken)
        await processes.start(taken)
        await processes.votes(admin, leader, taken)
        assert (await admin.runtime_info(processes.address(taken)))["dledgerDisk"] != own


@asynccontextmanager
async def without_group(processes: DledgerProcesses, member: str) -> AsyncIterator[None]:
    """Run a broker without replication on the store of a stopped member."""
    settings = processes.conf(member).read_text(encoding="utf-8")
    alone = processes.folder / f"alone-{member}.conf"
    lines = [line for line in settings.splitlines() if not line.startswith(("enableDLegerCommitLog", "dLeger"))]
    alone.write_text("\n".join(lines) + "\n", encoding="utf-8")
    async with serving(["broker", "-c", str(alone)], log=processes.folder / f"alone-{member}.log") as broker:
        yield
        broker.terminate()
        assert await asyncio.to_thread(broker.wait) == 0


async def stored(admin: AdminClient) -> int:
    """Return the number of messages of the topic."""
    return sum(each.max_offset for each in (await admin.topic_stats(TOPIC)).values())


async def stop_all(processes: DledgerProcesses) -> None:
    for member in processes.ports:
        await processes.stop(member)


async def test_member_with_messages_of_a_broker_without_group_does_not_rejoin_and_is_not_ready(tmp_path: Path) -> None:
    """The group does not have these messages. They stay on the disk, and its member and the leader show it."""
    async with dledger_group(tmp_path) as processes, admin_of(processes) as admin:
        await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        await send(processes)
        await stop_all(processes)
        async with without_group(processes, "n0"):
            await send(processes, 20)
        newest = log_bytes(processes, "n0")
        await asyncio.gather(*map(processes.start, processes.ports))
        leader = await processes.leads(admin)
        assert leader != "n0"
        await shows(processes, admin, leader, "n0 cannot join with data of another group: its disk must be empty")
        for starts in (1, 2):
            state = await diverged(processes, "n0")
            assert "a broker with replication mode none has written to the store of member n0" in state["diverged"]
            assert "a broker with replication mode none has written to the store of member n0" in state["remark"]
            await shows(processes, admin, "n0", "this disk has data that belongs to no group")
            status, text = await processes.probe("n0", "/readyz")
            assert status == 503
            assert "the store of member n0 does not fit the group" in text
            await processes.stop("n0")
            assert processes.log("n0").count("this disk has data that belongs to no group") == starts
            assert log_bytes(processes, "n0") == newest
            await processes.start("n0")
        await stop_all(processes)
        for member in ("n1", "n2"):
            processes.wipe(member)
        await asyncio.gather(*map(processes.start, processes.ports))
        await formed(processes, admin)
        for member in processes.ports:
            facts = await admin.runtime_info(processes.address(member))
            assert "dledgerConflict" not in facts
        assert await stored(admin) == 70
        assert "diverged" not in json.loads((await processes.probe("n0", "/replication"))[1])


async def diverged(processes: DledgerProcesses, member: str) -> dict[str, Any]:
    """Wait until the store of a member does not fit its group. Return the status of the member."""
    while True:
        state: dict[str, Any] = json.loads((await processes.probe(member, "/replication"))[1])
        if "diverged" in state:
            return state
        await asyncio.sleep(LOOK_S)


async def test_member_whose_log_a_broker_without_group_has_not_changed_rejoins(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes, admin_of(processes) as admin:
        await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        await send(processes)
        own = (await admin.runtime_info(processes.address("n0")))["dledgerDisk"]
        await stop_all(processes)
        async with without_group(processes, "n0"):
            assert await stored(admin) == 50
        await asyncio.gather(*map(processes.start, processes.ports))
        await formed(processes, admin)
        assert (await admin.runtime_info(processes.address("n0")))["dledgerDisk"] == own
        assert "left" not in json.loads((processes.root("n0") / "config/dledger.json").read_text())


async def promised(processes: DledgerProcesses, member: str, other: str, end: int) -> None:
    """Wait until a member has saved that another one has the log up to ``end``."""
    file = processes.root(member) / "config/dledgerCommit.json"
    while True:
        promises = json.loads(saved(file) or b"{}").get("promises", [])
        if any(each[0] == other and each[2][3][0] >= end for each in promises):
            return
        await asyncio.sleep(LOOK_S)


async def test_two_processes_with_one_identity_are_told_of(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes, admin_of(processes) as admin:
        leader = await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        await send(processes)
        copied = follower_of(processes, leader)
        kept = log_bytes(processes, copied)
        settings = dict(line.split("=", 1) for line in processes.conf(copied).read_text().splitlines() if "=" in line)
        peers = dict(peer.split("-", 1) for peer in settings["dLegerPeers"].split(";"))
        peers[copied] = f"127.0.0.1:{free_port()}"  # the two are on different machines
        settings |= {
            "dLegerPeers": ";".join(f"{member}-{address}" for member, address in peers.items()),
            "listenPort": str(free_port()),
            "metricsPort": str(free_port()),
            "storePathRootDir": str(tmp_path / "double"),
            "storePathCommitLog": str(tmp_path / "double/commitlog"),
        }
        conf = tmp_path / "double.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        async with serving(["broker", "-c", str(conf)], log=tmp_path / "double.log"):
            await conflict_at(processes, admin, leader, f"uses the id of member {copied}, which is running")
            assert await processes.leader(admin) == leader
        assert still_has(processes, copied, kept)
        await processes.votes(admin, leader, copied)


class Forger:
    """Sends frames to the group port of a member as if they came from another member."""

    def __init__(self, processes: DledgerProcesses, target: str) -> None:
        conf = processes.conf(target).read_text()
        peers = next(line for line in conf.splitlines() if line.startswith("dLegerPeers=")).partition("=")[2]
        self._address = next(peer for peer in peers.split(";") if peer.startswith(f"{target}-")).partition("-")[2]

    async def send(self, message: RaftMessage, group: str = BROKER, *, closes: bool = True) -> None:
        """Send a message. With ``closes``, wait until the member has closed the connection."""
        pool = ConnectionPool()
        connection = await pool.connection(self._address)
        fields: dict[str, Any] = {"flag": CommandFlag.ONEWAY, "serialize_type": 1, "body": encode_head(message)}
        connection.oneway(RemotingCommand(RequestCode.REPLICATE, {"group": group}, **fields))
        if closes:
            await connection.wait_closed()
        await pool.close(1)


async def head_of(processes: DledgerProcesses, admin: AdminClient, target: str, sender: str) -> dict[str, Any]:
    """Return the header fields of a message with the correct ids of the group."""
    state = json.loads((processes.root(sender) / "config/dledger.json").read_text())["hardState"]
    facts = await admin.runtime_info(processes.address(target))
    return {
        "sender": sender, "to": target, "term": int(facts["dledgerTerm"]), "incarnation": state["incarnation"],
        "boot": state["boot"], "to_incarnation": int(facts["dledgerDisk"], 16), "group": state["group"],
    }  # fmt: skip


async def test_a_peer_that_lies_about_its_term_changes_nothing(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes, admin_of(processes) as admin:
        leader = await formed(processes, admin)
        await admin.create_topic(TOPIC, 1, 1)
        await send(processes)
        sender = follower_of(processes, leader)
        target = next(member for member in processes.ports if member not in (leader, sender))
        kept = log_bytes(processes, target)
        forger, head = Forger(processes, target), await head_of(processes, admin, target, sender)
        far = VoteRequest(
            **head | {"term": head["term"] + (1 << 40)}, last_term=1 << 30, end=Position(1 << 40, 1 << 20)
        )
        await forger.send(far, closes=False)
        await conflict_at(processes, admin, target, f"{sender} names the term {head['term'] + (1 << 40)}")
        head_to_leader = await head_of(processes, admin, leader, sender)
        second = Append(**head_to_leader, previous=Position(0, 0), previous_term=0, end=Position(0, 0), round=1)
        await Forger(processes, leader).send(second, closes=False)
        await conflict_at(processes, admin, leader, f"{sender} says that it leads term {head['term']}")
        assert (await admin.runtime_info(processes.address(target)))["dledgerTerm"] == str(head["term"])
        assert await processes.leader(admin) == leader
        assert still_has(processes, target, kept)


@pytest.mark.parametrize("access", ["", ACCESS])
async def test_forged_frames_are_refused(tmp_path: Path, access: str) -> None:
    async with dledger_group(tmp_path, access) as processes, admin_of(processes, KEYS if access else None) as admin:
        leader = await formed(processes, admin)
        sender = follower_of(processes, leader)
        head = await head_of(processes, admin, leader, sender)
        forger = Forger(processes, leader)
        before = await processes.metric(leader, "replication_refused_frames_total")
        request = VoteRequest(**head | {"term": head["term"] + 1}, last_term=1 << 20, end=Position(1 << 40, 9))
        for _ in range(2):
            await forger.send(request, BROKER if access else "another")
        assert await processes.metric(leader, "replication_refused_frames_total") == before + 2
        assert processes.log(leader).count("on the port of the group") == 1
        assert (await admin.runtime_info(processes.address(leader)))["dledgerTerm"] == str(head["term"])
        assert await processes.leader(admin) == leader


async def test_member_with_another_segment_size_stays_out_of_a_group_that_serves(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        odd, other = (member for member in processes.ports if member != leader)
        await processes.stop(odd)
        processes.wipe(odd)
        settings = processes.conf(odd).read_text(encoding="utf-8")
        processes.conf(odd).write_text(settings + "mappedFileSizeCommitLog=16M\n", encoding="utf-8")
        await processes.start(odd)
        stated = f"mappedFileSizeCommitLog is {16 << 20} here and {8 << 20} on {{}}, and cannot be changed in a group"
        while not any(stated.format(member) in processes.log(odd) for member in (leader, other)):
            await asyncio.sleep(0.02)
        while (
            f"mappedFileSizeCommitLog is {8 << 20} here and {16 << 20} on {odd}"
            not in (await processes.probe(leader, "/replication"))[1]
        ):
            await asyncio.sleep(0.02)
        state = json.loads((await processes.probe(odd, "/replication"))[1])
        assert "cannot be changed in a group" in state["remark"]
        assert state["lastOffset"] == 0
        assert await processes.metric(odd, "replication_conflict") == 1
        await admin.create_topic("T", 1, 1)
        async with Producer("senders", client_config=processes.clients()) as producer:
            await producer.send(Message("T", b"a message"))
        assert await processes.leader(admin) == leader
        await processes.stop(odd)
        processes.conf(odd).write_text(settings, encoding="utf-8")
        await processes.start(odd)
        await processes.probed(odd, "/replication/caught-up")
        while await processes.metric(leader, "replication_conflict"):
            await asyncio.sleep(0.02)
