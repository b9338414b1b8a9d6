"""`AdminClient` and consumer groups that only some brokers have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Producer, PullConsumer
from raptormq.errors import NoRoute, ServerError
from raptormq.protocol.bodies import group_progress
from tests.broker.harness import connected
from tests.broker.retention import SHORT_SEGMENTS, delete_what_is_stored
from tests.client.embedded_cluster import Cluster

HERE, THERE = MessageQueue("t", "broker-0", 0), MessageQueue("t", "broker-1", 0)


async def half_consumed(cluster: Cluster, admin: AdminClient, group: str) -> None:
    """Send three messages to a queue of each broker. The group has consumed two of one broker."""
    await admin.create_topic("t", 1, 1)
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for queue in (HERE, THERE):
            for body in (b"0", b"1", b"2"):
                await producer.send(Message("t", body), queue=queue)
    async with PullConsumer(group=group, name_servers=cluster.name_servers) as consumer:
        consumer.assign([HERE])
        consumer.seek(HERE, 0)
        assert len(await consumer.poll(30)) == 3
        consumer.seek(HERE, 2)
        await consumer.commit()


async def test_what_waits_on_a_broker_where_nothing_is_committed_is_lag_too(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        await half_consumed(cluster, admin, "halves")
        progress = await admin.group_progress("halves")
        assert {queue: each.lag for queue, each in progress.items()} == {HERE: 1, THERE: 3}
        assert await admin.group_progress("halves", "t") == progress
        assert await admin.group_progress("nobody") == {}


@pytest.mark.parametrize("is_told", [True, False], ids=["as here", "as by Apache's brokers"])
async def test_what_was_deleted_before_the_group_came_to_it_is_lost_and_no_lag(
    tmp_path: Path, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_told:
        tell = group_progress._progress_to_dict
        monkeypatch.setattr(group_progress, "_progress_to_dict", lambda each: tell(replace(each, min_offset=None)))
    async with (
        Cluster(tmp_path, 1, 1, **SHORT_SEGMENTS) as cluster,
        AdminClient(name_servers=cluster.name_servers) as admin,
        connected(cluster.broker()) as peer,
    ):
        await admin.create_topic("t", 1, 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for _ in range(3):
                await producer.send(Message("t", b"old"), queue=HERE)
        async with PullConsumer(group="late", name_servers=cluster.name_servers) as consumer:
            consumer.assign([HERE])
            consumer.seek(HERE, 1)
            await consumer.commit()
        await delete_what_is_stored(tmp_path / "broker-0", cluster.broker(), peer)
        await peer.send("t", b"new")
        [each] = (await admin.group_progress("late")).values()
        assert (each.consumer_offset, each.min_offset, each.broker_offset, each.lag, each.lost) == (1, 3, 4, 1, 2)


async def test_an_installation_without_brokers(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=0) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        for call in (admin.groups(), admin.group_progress("g"), admin.group_connections("g")):
            with pytest.raises(NoRoute, match="no broker is registered"):
                await call


async def test_a_reset_moves_every_broker(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        await half_consumed(cluster, admin, "halves")
        assert await admin.reset_group("halves", "t", -1) == {HERE: 3, THERE: 3}
        assert {each.lag for each in (await admin.group_progress("halves")).values()} == {0}
        assert await admin.reset_group("halves", "t", 0) == {HERE: 0, THERE: 0}
        assert {each.lag for each in (await admin.group_progress("halves")).values()} == {3}
        with pytest.raises(ServerError, match="nobody does not exist"):
            await admin.reset_group("nobody", "t", 0)
