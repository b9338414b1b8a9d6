"""A disk that becomes full while the broker runs: code 14, no loss of acknowledged messages, and recovery when there is
space.
"""

from __future__ import annotations

from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import Peer, bodies, connected, running
from tests.faults.conftest import SmallVolume

BODY = b"x" * 100_000


async def read_all(peer: Peer) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = await peer.pull("t", len(found))
        if answer.code:
            return found
        found += bodies(answer)


async def send_until(peer: Peer, code: int, acknowledged: list[bytes]) -> str:
    """Send until the broker responds with ``code``. Return its remark."""
    while True:
        body = b"%d:" % len(acknowledged) + BODY
        answer = await peer.send("t", body)
        if answer.code == ResponseCode.SUCCESS:
            acknowledged.append(body)
        if answer.code == code:
            return answer.remark or ""
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE), answer


async def test_a_full_disk_loses_nothing_and_recovers(small_volume: SmallVolume) -> None:
    acknowledged: list[bytes] = []
    pairs = {"mappedFileSizeCommitLog": "4M"}
    async with running(small_volume.root, pairs, small_volume.filesystem) as broker, connected(broker) as peer:
        await send_until(peer, ResponseCode.SUCCESS, acknowledged)
        small_volume.fill()
        remark = await send_until(peer, ResponseCode.SERVICE_NOT_AVAILABLE, acknowledged)
        assert "No space left on device" in remark
        # Everything else continues: reads, offset commits, heartbeats.
        assert await read_all(peer) == acknowledged
        commit: dict[str, object] = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1}
        assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        assert (await peer.heartbeat("me", "g", "t")).code == 0
        small_volume.make_room()
        await send_until(peer, ResponseCode.SUCCESS, acknowledged)
        assert await read_all(peer) == acknowledged
    async with running(small_volume.root, pairs, small_volume.filesystem) as broker, connected(broker) as peer:
        assert await read_all(peer) == acknowledged


async def test_a_batch_on_a_full_disk_is_stored_whole_or_not_at_all(small_volume: SmallVolume) -> None:
    pairs = {"mappedFileSizeCommitLog": "4M"}
    stored = 0
    async with running(small_volume.root, pairs, small_volume.filesystem) as broker, connected(broker) as peer:
        await peer.send_list("t", [BODY] * 3)
        stored += 3
        small_volume.fill()
        while (answer := await peer.send_list("t", [BODY] * 7)).code == ResponseCode.SUCCESS:
            stored += 7
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert len(await read_all(peer)) == stored


async def test_writes_go_on_with_the_room_and_not_with_the_next_look_of_retention(small_volume: SmallVolume) -> None:
    acknowledged: list[bytes] = []
    pairs = {"mappedFileSizeCommitLog": "4M", "cleanResourceInterval": "86400000", "diskSpaceWarningLevelRatio": "90"}
    async with running(small_volume.root, pairs, small_volume.filesystem) as broker, connected(broker) as peer:
        await send_until(peer, ResponseCode.SUCCESS, acknowledged)
        small_volume.fill()
        assert (await peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == ResponseCode.SUCCESS
        remark = await send_until(peer, ResponseCode.SERVICE_NOT_AVAILABLE, acknowledged)
        assert not small_volume.mounted or "diskSpaceWarningLevelRatio" in remark
        small_volume.make_room()
        await send_until(peer, ResponseCode.SUCCESS, acknowledged)
        assert await read_all(peer) == acknowledged
