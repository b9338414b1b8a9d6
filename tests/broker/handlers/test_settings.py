"""UPDATE_BROKER_CONFIG (25): effect of a change on later requests, and refused changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.protocol.command import RemotingCommand
from tests.broker.harness import Peer, connected, running, settings

_HALF_A_CHARACTER = "setting 'brokerName': an escape is an unpaired surrogate"


async def update(peer: Peer, **pairs: object) -> RemotingCommand:
    body = "".join(f"{key}={value}\n" for key, value in pairs.items())
    return await peer.call(25, None, body.encode())


async def in_force(peer: Peer) -> dict[str, str]:
    lines = (await peer.call(26)).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


async def test_topics_are_created_by_messages_only_while_that_is_allowed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await update(peer, autoCreateTopicEnable="false")).code == 0
        assert (await peer.send("t", b"1")).code == 17
        assert (await in_force(peer))["autoCreateTopicEnable"] == "false"
        assert (await update(peer, autoCreateTopicEnable="true")).code == 0
        assert (await peer.send("t", b"1")).code == 0


async def test_a_broker_that_was_started_without_the_template_gets_it(tmp_path: Path) -> None:
    off = {"autoCreateTopicEnable": "false"}
    async with running(tmp_path, off) as broker, connected(broker) as peer:
        assert (await update(peer, autoCreateTopicEnable="true")).code == 0
        assert (await peer.send("t", b"1")).code == 0


async def test_permission_and_size_count_for_the_next_message(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x" * 100)).code == 0
        assert (await update(peer, brokerPermission=4, maxMessageSize=99)).code == 0
        assert (await peer.send("t", b"1")).code == 16
        assert (await peer.pull("t", 0)).code == 0
        assert (await update(peer, brokerPermission=2)).code == 0
        assert (await peer.send("t", b"x" * 100)).code == 13
        assert (await peer.pull("t", 0)).code == 16
        assert (await update(peer, brokerPermission=6, maxMessageSize="4M")).code == 0
        assert (await peer.send("t", b"x" * 100)).code == 0


async def test_filters_lite_pulls_and_groups(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"1")
        assert (await peer.pull("t", 0, expressionType="SQL92", subscription="a IS NULL")).code == 1
        changes = {"enablePropertyFilter": "true", "autoCreateSubscriptionGroup": "false"}
        assert (await update(peer, **changes)).code == 0
        assert (await peer.pull("t", 0, expressionType="SQL92", subscription="a IS NULL")).code == 0
        assert (await peer.pull("t", 0, consumerGroup="new")).code == 26
        assert (await update(peer, maxTransferCountOnMessageInMemory=1)).code == 0
        await peer.send("t", b"2")
        assert len((await peer.pull("t", 0)).body) == len((await peer.pull("t", 1)).body)


async def test_how_long_messages_are_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        changes = {"fileReservedTime": 1, "deleteWhen": "02;03", "diskMaxUsedSpaceRatio": 60}
        assert (await update(peer, **changes)).code == 0
        kept = broker._store.config
        assert (kept.file_reserved_hours, kept.delete_when, kept.disk_max_used_ratio) == (1, "02;03", 0.6)


async def test_a_change_is_in_the_file_and_another_start_has_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# ours\nmaxMessageSize=1M\n")
    broker = Broker(replace(settings(tmp_path / "store", {"maxMessageSize": "1M"}), path=path))
    await broker.start()
    try:
        async with connected(broker) as peer:
            answered = await update(peer, maxMessageSize="2M", defaultTopicQueueNums=4)
            assert (answered.code, answered.remark) == (0, "effective at the next start: defaultTopicQueueNums")
            assert (await in_force(peer))["defaultTopicQueueNums"] == "8"
    finally:
        await broker.stop()
    assert path.read_text() == "# ours\nmaxMessageSize=2M\ndefaultTopicQueueNums=4\n"


@pytest.mark.parametrize(
    ("pairs", "code", "remark"),
    [
        ({"fileReservedTime": "soon"}, 29, "setting fileReservedTime = 'soon' is not usable: expected a whole number"),
        ({"fileReservedTme": "1"}, 29, "unknown setting fileReservedTme, did you mean fileReservedTime?"),
        ({"brokerConfigPath": "/tmp/x"}, 16, "Can not update config in black list."),
        ({"initAuthenticationUser": '{"username":"me","password":"x"}'}, 16, "Can not update config in black list."),
        ({"authenticationEnabled": "false"}, 16, "Can not update config in black list."),
        ({"brokerName": "x\\ud800"}, 29, _HALF_A_CHARACTER),
    ],
)
async def test_what_is_refused_changes_nothing(tmp_path: Path, pairs: dict[str, str], code: int, remark: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        before = await in_force(peer)
        refused = await update(peer, maxMessageSize="1K", **pairs)
        assert refused.code == code
        assert (refused.remark or "").startswith(remark)
        assert (await peer.call(25, None, b"\xff\xfe")).code == 29
        assert await in_force(peer) == before


async def test_nothing_to_change_is_no_error(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(25)).code == 0


async def test_two_changes_at_a_time_both_count(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await asyncio.gather(update(peer, fileReservedTime=5), update(peer, maxMessageSize=77))
        found = await in_force(peer)
        assert (found["fileReservedTime"], found["maxMessageSize"]) == ("5", "77")
