"""A member that leads, follows another leader and leads again continues from the state of the other leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.delay.delivery import DelayedDelivery
from raptormq.broker.pop.revive_service import PopReviveService
from raptormq.errors import StorageError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.pop_handle import PopHandle
from raptormq.storage.queue import AppendResult, PendingRecord
from tests.broker.handlers.test_pop import ack, handle_of, pop
from tests.broker.harness import Peer, assembly_of, bodies, connected, messages
from tests.broker.replication.test_brokers import (
    become,
    first_and_second,
    group,
    leader_of,
    move,
    part_of,
    read,
)
from tests.broker.transaction.producer import COMMIT, NEVER, QUICK, announce, answer, end, prepare, question

INVISIBLE_MS, LONGER_MS = 1_000, 4_000
DAY_MS = 86_400_000
T = TypeVar("T")


def service(broker: Broker, kind: type[T]) -> T:
    """Return a background service of a broker."""
    (found,) = (each for each in assembly_of(broker).services if isinstance(each, kind))
    return found


async def started(broker: Broker) -> None:
    """Wait until the services of a leader run."""
    revival = service(broker, PopReviveService)
    await become(lambda: revival._task is not None and not revival._task.done())


async def transfer(brokers: dict[str, Broker], leader: str, to: str) -> None:
    """Transfer leadership like an administrator, with the consumer offsets."""
    await part_of(brokers[leader]).transfer(to)
    await become(lambda: leader_of(brokers) == to)


async def popped_until(peer: Peer, count: int) -> list[bytes]:
    """Pop and acknowledge until this number of messages is received."""
    found: list[bytes] = []
    while len(found) < count:
        answered = await pop(peer, queueId=-1, pollTime=1_000, invisibleTime=DAY_MS)
        found += bodies(answered)
    return found


async def test_popped_messages_of_another_leader_become_visible_again(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3), {"brokerName": "broker-a"}) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here, connected(brokers[second]) as there:
            for body in (b"acknowledged by the second", b"popped at the second"):
                assert (await here.send("t", body)).code == ResponseCode.SUCCESS
            earlier = await pop(here, maxMsgNums=1, invisibleTime=LONGER_MS)
            visible_again = asyncio.get_running_loop().time() + LONGER_MS / 1000
            assert bodies(earlier) == [b"acknowledged by the second"]
            await transfer(brokers, first, second)
            later = await pop(there, maxMsgNums=1, invisibleTime=INVISIBLE_MS, queueId=0)
            assert bodies(later) == [b"popped at the second"]
            handle: PopHandle = handle_of(earlier, 0)
            assert (await ack(there, handle, 0)).code == ResponseCode.SUCCESS
            await transfer(brokers, second, first)
            assert await popped_until(here, 1) == [b"popped at the second"]
            assert (await here.send("t", b"last")).code == ResponseCode.SUCCESS
            left = visible_again + 0.5 - asyncio.get_running_loop().time()
            last = await pop(here, invisibleTime=max(1, round(left * 1000)))
            assert bodies(last) == [b"last"]
            assert await popped_until(here, 1) == [b"last"], "acknowledged at the second leader, so not returned"


async def test_a_transaction_that_another_leader_has_decided_is_not_decided_again(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3), NEVER) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here, connected(brokers[second]) as there:
            sent = await prepare(here, b"once")
            await move(brokers, second)
            assert (await end(there, sent, COMMIT)).code == ResponseCode.SUCCESS
            await move(brokers, first)
            repeated = await end(here, sent, COMMIT)
            assert (repeated.code, repeated.remark) == (
                ResponseCode.ILLEGAL_OPERATION,
                "the transaction is already decided or discarded",
            )
            assert (await here.send("t", b"last", 2)).code == ResponseCode.SUCCESS
            found: list[bytes] = []
            while len(found) < 2:
                found += bodies(await here.pull("t", len(found), 2, wait_ms=5_000))
            assert found == [b"once", b"last"]


async def test_a_transaction_whose_leader_died_between_its_message_and_its_end_is_committed_once(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log contains the message but not the record that ends the transaction, and the next leader leads for the
    first time.
    """
    async with group(tmp_path, free_ports(3), NEVER) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here, connected(brokers[second]) as there:
            sent = await prepare(here, b"once")
            writer = assembly_of(brokers[first]).transactions._writer
            write_confirmed = writer.write_confirmed

            async def write_message(records: Sequence[PendingRecord]) -> AppendResult:
                await write_confirmed(records[:1])
                raise StorageError("the leader dies here")

            monkeypatch.setattr(writer, "write_confirmed", write_message)
            assert (await end(here, sent, COMMIT)).code != ResponseCode.SUCCESS
            await move(brokers, second)
            repeated = await end(there, sent, COMMIT)
            assert (repeated.code, repeated.remark) == (
                ResponseCode.ILLEGAL_OPERATION,
                "the transaction is already decided or discarded",
            )
            assert (await there.send("t", b"last", 2)).code == ResponseCode.SUCCESS
            found: list[bytes] = []
            while len(found) < 2:
                found += bodies(await there.pull("t", len(found), 2, wait_ms=5_000))
            assert found == [b"once", b"last"]


async def test_only_open_transactions_are_checked(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with group(tmp_path, free_ports(3), QUICK | {"transactionCheckMax": "100"}) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here, connected(brokers[second]) as there:
            decided = await prepare(here, b"decided")
            await move(brokers, second)
            assert (await end(there, decided, COMMIT)).code == ResponseCode.SUCCESS
            await prepare(there, b"open")
            await move(brokers, first)
            await announce(here)
            asked = await question(here)
            assert b"open" in asked.body
            assert (await answer(here, asked, COMMIT)).code == ResponseCode.SUCCESS
            assert (await here.send("t", b"last", 2)).code == ResponseCode.SUCCESS
            found: list[bytes] = []
            while len(found) < 3:
                found += bodies(await here.pull("t", len(found), 2, wait_ms=5_000))
            assert found == [b"decided", b"open", b"last"]


async def test_followers_keep_no_open_transactions(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with group(tmp_path, free_ports(3), NEVER) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here:
            for number in range(20):
                sent = await prepare(here, b"%d" % number)
                assert (await end(here, sent, COMMIT)).code == ResponseCode.SUCCESS
            await become(lambda: brokers[second]._store.queue_end("t", 2) == 20)
            assert assembly_of(brokers[second]).transactions.open_count == 0


async def test_timer_messages_are_delivered_once_by_a_leader_that_comes_back(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3), {"timerPrecisionMs": "100"}) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here, connected(brokers[second]) as there:
            for body, delay in ((b"by the second", 1_500), (b"by the first", 5_000)):
                assert (await here.send("t", body, properties=f"TIMER_DELAY_MS\x01{delay}\x02")).code == 0
            await move(brokers, second)
            assert await read(there, "t", 1) == [b"by the second"]
            await move(brokers, first)
            assert await read(here, "t", 2) == [b"by the second", b"by the first"]
            assert (await here.send("t", b"last")).code == ResponseCode.SUCCESS
            assert await read(here, "t", 3) == [b"by the second", b"by the first", b"last"]


async def test_delayed_messages_of_every_level_are_delivered_once(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3), {"messageDelayLevel": "1s 1s 1s"}) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here, connected(brokers[second]) as there:
            delivery = service(brokers[first], DelayedDelivery)
            await become(lambda: len(delivery._recovered_levels) == 3)
            for level in (3, 2, 1):
                assert (await here.send("t", b"%d" % level, properties=f"DELAY\x01{level}\x02")).code == 0
            await move(brokers, second)
            assert sorted(await read(there, "t", 3)) == [b"1", b"2", b"3"]
            await move(brokers, first)
            assert (await here.send("t", b"last", properties="DELAY\x013\x02")).code == ResponseCode.SUCCESS
            assert sorted(await read(here, "t", 4)) == [b"1", b"2", b"3", b"last"]


async def test_a_delivery_that_no_other_member_has_is_repeated(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3), {"messageDelayLevel": "1s"}) as brokers:
        first, _ = await first_and_second(brokers)
        part, delivery = part_of(brokers[first]), service(brokers[first], DelayedDelivery)
        deliver, cut = DelayedDelivery._deliver, pytest.MonkeyPatch()

        async def deliver_without_the_others(self: DelayedDelivery, level: int, offset: int, count: int) -> None:
            if self is not delivery:
                raise StorageError("stopped by the test")
            cut.setattr(part._links, "send", lambda _: None)
            cut.setattr(part.inbox, "_receive", lambda _: None)
            await deliver(self, level, offset, count)

        async def deliver_at_the_first(self: DelayedDelivery, level: int, offset: int, count: int) -> None:
            if self is not delivery:
                raise StorageError("stopped by the test")
            await deliver(self, level, offset, count)

        monkeypatch.setattr(DelayedDelivery, "_deliver", deliver_without_the_others)
        async with connected(brokers[first]) as here:
            assert (await here.send("t", b"delayed", properties="DELAY\x011\x02")).code == ResponseCode.SUCCESS
            delays = assembly_of(brokers[first]).tables.delays
            await become(lambda: delays.offsets.get(1) == 1)
            others = {member: broker for member, broker in brokers.items() if member != first}
            await become(lambda: bool(leader_of(others)) and not part.member.leads)
            cut.undo()
            await become(lambda: part.member.leader == leader_of(brokers))
            monkeypatch.setattr(DelayedDelivery, "_deliver", deliver_at_the_first)
            await move(brokers, first)
            assert bodies(await here.pull("t", 0, wait_ms=10_000)) == [b"delayed"]


async def test_services_are_restarted_when_leadership_is_lost_and_regained_at_once(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(1)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        part = part_of(brokers["n0"])
        steps: list[str] = []
        work = part._work
        assert work is not None
        await started(brokers["n0"])

        async def start() -> None:
            steps.append("start")
            await work.start()

        async def stop() -> None:
            steps.append("stop")
            await work.stop()

        part._work = type(work)(start, stop, work.register)
        listeners = part.member.listeners
        listeners.following()
        listeners.leading()
        await become(lambda: steps == ["stop", "start"])


async def test_a_held_pop_is_refused_when_leadership_is_lost(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        first, second = await first_and_second(brokers)
        async with connected(brokers[first]) as here:
            assert (await here.send("t", b"one")).code == ResponseCode.SUCCESS
            assert len(messages(await pop(here))) == 1
            waiting = asyncio.ensure_future(pop(here, pollTime=9_000, order=True))
            await become(lambda: len(service(brokers[first], PopReviveService)._held_pops) == 1)
            await move(brokers, second)
            answered = await waiting
            assert answered.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "leader" in (answered.remark or "")
