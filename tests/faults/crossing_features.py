"""Features in use while a condition happens to their cluster. Each has a step before it and one after it.

Sends are repeated until they are acknowledged, so a message may be stored more than once: a feature compares sets, or
the order of first occurrences. What was acknowledged, committed or deleted before the condition must hold after it.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from raptormq.broker.ha.table_sync import SYNC_S
from raptormq.client import (
    AclEntry,
    AdminClient,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Delay,
    Message,
    MessageExt,
    Order,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from raptormq.errors import RaptorMQError
from tests.faults.crossing_clusters import LOOK_S, Cluster
from tests.faults.dledger_processes import PATIENCE_S

QUEUES = 2
OFFSETS_SAVED_S = 2 * SYNC_S
"""Offsets are promised to outlive a crash after a time: brokers save them, groups replicate them, slaves copy them."""
_PATIENT = ProducerConfig(send_timeout=PATIENCE_S, retries=50)
_FROM_FIRST = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST, start_timeout=PATIENCE_S, commit_interval=0.2, rebalance_interval=1.0
)


class Feature(ABC):
    """One row of the page of crossings, on one cluster. ``topic`` and ``group`` have its name."""

    name: str

    def __init__(self, cluster: Cluster, admin: AdminClient) -> None:
        self.cluster, self.admin = cluster, admin
        self.topic, self.group = f"{self.name}-topic", f"{self.name}-group"

    async def prepare(self) -> None:
        """Create topics and groups, as an administrator."""
        await self.admin.create_topic(self.topic, QUEUES, QUEUES)
        await self.admin.create_group(self.group)

    @abstractmethod
    async def before(self) -> None:
        """Use the feature until something has been acknowledged that must hold afterwards."""

    @abstractmethod
    async def after(self) -> None:
        """Check it, and use the feature again."""

    def producer(self, config: ProducerConfig = _PATIENT) -> Producer:
        return Producer(self.group, config=config, client_config=self.cluster.clients)

    def consumer(
        self,
        listen: Callable[[MessageExt], Awaitable[ConsumeResult | None]],
        config: ConsumerConfig = _FROM_FIRST,
        instance: str = "",
    ) -> PushConsumer:
        """Return a consumer of the topic that calls ``listen`` for each message."""
        clients = self.cluster.clients
        if instance:
            clients = replace(clients, instance_name=instance)
        consumer = PushConsumer(self.group, config=config, client_config=clients)

        async def listen_to_one(messages: list[MessageExt]) -> ConsumeResult | None:
            [message] = messages
            return await listen(message)

        consumer.subscribe(self.topic, "*", listen_to_one)
        return consumer

    async def send(self, bodies: Iterable[bytes], topic: str = "", **more: object) -> None:
        """Send messages one after the other to the first queue."""
        async with self.producer() as producer:
            queue = (await producer.queues(topic or self.topic))[0]
            for body in bodies:
                await producer.send(Message(topic or self.topic, body, **more), queue=queue)  # type: ignore[arg-type]

    async def stored(self, topic: str = "") -> list[bytes]:
        """Return the bodies of all messages of the topic, each at its first occurrence.

        While no broker serves, the read is repeated.
        """
        while True:
            try:
                return await self._read(topic)
            except RaptorMQError:
                await asyncio.sleep(LOOK_S)

    async def _read(self, topic: str) -> list[bytes]:
        found: dict[bytes, None] = {}
        async with PullConsumer(client_config=self.cluster.clients) as consumer:
            for queue in await consumer.queues(topic or self.topic):
                offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                while offset < end:
                    pulled = await consumer.pull(queue, offset, 1_000)
                    found |= dict.fromkeys(message.body for message in pulled.messages())
                    offset = pulled.next_offset
        return list(found)


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


class Sends(Feature):
    name = "sends"

    async def before(self) -> None:
        await self.send(numbered(0, 50))

    async def after(self) -> None:
        await self.send(numbered(50, 100))
        assert await self.stored() == numbered(0, 100)


class Batches(Feature):
    name = "batches"

    async def prepare(self) -> None:
        await self.admin.create_topic(self.topic, 1, 1, attributes={"queue.type": "BatchCQ"})

    async def before(self) -> None:
        await self._send(0)

    async def _send(self, start: int) -> None:
        merging = ProducerConfig(send_timeout=PATIENCE_S, retries=50, auto_batch=True)
        async with self.producer() as producer, self.producer(merging) as merged:
            await producer.send_batch(Message(self.topic, body) for body in numbered(start, start + 30))
            await asyncio.gather(*(merged.send(Message(self.topic, body)) for body in numbered(start + 30, start + 60)))

    async def after(self) -> None:
        await self._send(60)
        assert sorted(await self.stored()) == sorted(numbered(0, 120))


class Transactions(Feature):
    name = "transactions"

    async def before(self) -> None:
        for body, state in (
            (b"committed", TransactionState.COMMIT),
            (b"rolled back", TransactionState.ROLLBACK),
            (b"unknown", TransactionState.UNKNOWN),
        ):
            await self._send(body, state)

    async def _send(self, body: bytes, state: TransactionState) -> None:
        async def execute(_: Message) -> TransactionState:
            return state

        async with self._producer() as producer:
            await producer.send_in_transaction(Message(self.topic, body), execute)

    def _producer(self) -> TransactionProducer:
        async def check(message: MessageExt) -> TransactionState:
            return TransactionState.ROLLBACK if message.body == b"rolled back" else TransactionState.COMMIT

        return TransactionProducer(
            self.group, check, topics=[self.topic], config=_PATIENT, client_config=self.cluster.clients
        )

    async def after(self) -> None:
        await self._send(b"after", TransactionState.COMMIT)
        async with self._producer():  # is checked
            while set(found := await self.stored()) < {b"committed", b"unknown", b"after"}:
                await asyncio.sleep(LOOK_S)
        assert sorted(found) == [b"after", b"committed", b"unknown"]


class Delays(Feature):
    name = "delays"

    async def before(self) -> None:
        self.due = time.time() + 8
        await self.send([b"timer"], delay=Delay.until(round(self.due * 1_000)))
        await self.send([b"level"], delay=Delay.by_level(2))  # 5 s
        assert not await self.stored()

    async def after(self) -> None:
        while len(found := await self.stored()) < 2:
            await asyncio.sleep(LOOK_S)
        assert time.time() >= self.due
        assert sorted(found) == [b"level", b"timer"]


class Retries(Feature):
    name = "retries"

    async def before(self) -> None:
        await self.send([b"fails once"])
        await self._consume({b"fails once"}, ConsumeResult.RECONSUME_LATER)

    async def _consume(self, bodies: set[bytes], result: ConsumeResult) -> None:
        """Consume until these messages have been delivered once."""
        found: set[bytes] = set()

        async def listen(message: MessageExt) -> ConsumeResult:
            found.add(message.body)
            return result

        async with self.consumer(listen):
            while not bodies <= found:
                await asyncio.sleep(LOOK_S)

    async def after(self) -> None:
        await self.send([b"new"])
        await self._consume({b"fails once", b"new"}, ConsumeResult.SUCCESS)  # 10 s after the first delivery


class Offsets(Feature):
    name = "offsets"

    async def before(self) -> None:
        await self.send(numbered(0, 20))
        async with self._consumer() as consumer:
            self.queue = (await consumer.queues(self.topic))[0]
            consumer.assign([self.queue])
            consumer.seek(self.queue, 7)
            await consumer.commit()
        saved_at = time.monotonic() + OFFSETS_SAVED_S
        while time.monotonic() < saved_at:
            await asyncio.sleep(LOOK_S)

    def _consumer(self) -> PullConsumer:
        return PullConsumer(group=self.group, client_config=self.cluster.clients)

    async def after(self) -> None:
        async with self._consumer() as consumer:
            assert await consumer.committed(self.queue) == 7
            consumer.assign([self.queue])
            consumer.seek(self.queue, 9)
            await consumer.commit()
        async with self._consumer() as consumer:
            assert await consumer.committed(self.queue) == 9


class Pulls(Feature):
    name = "pulls"

    async def before(self) -> None:
        await self.send([b"old"])
        self.held = asyncio.create_task(self._next())

    async def _next(self) -> bytes:
        """Wait for the second message with held pulls."""
        async with PullConsumer(client_config=self.cluster.clients) as consumer:
            queue = (await consumer.queues(self.topic))[0]
            while True:
                try:
                    pulled = await consumer.pull(queue, 1, suspend_ms=5_000, timeout=PATIENCE_S)
                except RaptorMQError:
                    await asyncio.sleep(LOOK_S)
                    continue
                for message in pulled.messages():
                    return message.body

    async def after(self) -> None:
        await self.send([b"new"])
        assert await self.held == b"new"


class Pop(Feature):
    name = "pop"

    async def before(self) -> None:
        await self.send(numbered(0, 8))
        async with self._consumer() as consumer:
            await self._acknowledge(consumer, numbered(0, 4))

    def _consumer(self) -> PopConsumer:
        return PopConsumer(self.group, self.topic, invisible_time=10.0, client_config=self.cluster.clients)

    async def _acknowledge(self, consumer: PopConsumer, wanted: list[bytes]) -> set[bytes]:
        """Receive until these messages are acknowledged. Return the bodies of the others that were received."""
        left, others = set(wanted), set()
        while left:
            for message in await consumer.receive(timeout=5.0):
                if message.body in left:
                    try:
                        await message.ack()
                    except RaptorMQError:  # the leader has changed; the message comes again
                        continue
                    left.discard(message.body)
                else:
                    others.add(message.body)
        return others

    async def after(self) -> None:
        await self.send([b"new"])
        async with self._consumer() as consumer:
            others = await self._acknowledge(consumer, [*numbered(4, 8), b"new"])
        assert others <= {b"new"}, "an acknowledged message was received again; only a repeated send is stored twice"


class Ordered(Feature):
    name = "ordered"

    async def before(self) -> None:
        self.seen: list[bytes] = []
        await self.send(numbered(0, 30))
        config = ConsumerConfig(
            consume_from=ConsumeFromWhere.FIRST, start_timeout=PATIENCE_S, order=Order.BY_QUEUE, commit_interval=0.2
        )

        async def listen(message: MessageExt) -> None:
            self.seen.append(message.body)

        self.ordered = self.consumer(listen, config)
        await self.ordered.start()
        while len(set(self.seen)) < 30:
            await asyncio.sleep(LOOK_S)

    async def after(self) -> None:
        await self.send(numbered(30, 60))
        while len(set(self.seen)) < 60:
            await asyncio.sleep(LOOK_S)
        await self.ordered.stop()
        assert list(dict.fromkeys(self.seen)) == numbered(0, 60)


class Rebalance(Feature):
    name = "rebalance"

    async def before(self) -> None:
        self.seen: list[set[bytes]] = [set(), set()]
        self.members = [self._member(number) for number in range(2)]
        for member in self.members:
            await member.start()
        await self._until_both_read(0)

    def _member(self, number: int) -> PushConsumer:
        async def listen(message: MessageExt) -> None:
            self.seen[number].add(message.body)

        return self.consumer(listen, instance=f"rebalance-{number}")

    async def _until_both_read(self, start: int) -> None:
        """Send to both queues until each consumer has received a message since then."""
        known = [len(seen) for seen in self.seen]
        async with self.producer() as producer:
            number = start
            while any(len(seen) <= before for seen, before in zip(self.seen, known, strict=True)):
                for queue in await producer.queues(self.topic):
                    await producer.send(Message(self.topic, b"%d" % number), queue=queue)
                    number += 1
                await asyncio.sleep(LOOK_S)
        self.sent = number
        while set().union(*self.seen) != set(numbered(0, number)):
            await asyncio.sleep(LOOK_S)

    async def after(self) -> None:
        await self._until_both_read(self.sent)
        for member in self.members:
            await member.stop()


class Requests(Feature):
    name = "request-reply"

    async def before(self) -> None:
        await self._exchange(b"before")

    async def _exchange(self, body: bytes) -> None:
        async with self.producer() as replying, self.producer() as asking:

            async def listen(message: MessageExt) -> None:
                await replying.reply(message, b"reply to " + message.body)

            async with self.consumer(listen):
                answer = await asking.request(Message(self.topic, body), timeout=PATIENCE_S)
            assert answer.body == b"reply to " + body

    async def after(self) -> None:
        await self._exchange(b"after")


class Topics(Feature):
    name = "topics"

    async def before(self) -> None:
        await self.admin.create_topic("topics-changed", 4, 4)
        await self.admin.create_topic("topics-changed", 6, 6)
        await self.admin.create_topic("topics-deleted", 1, 1)
        await self.admin.delete_topic("topics-deleted")

    async def after(self) -> None:
        [master] = await self.admin.masters()
        changed = await self.admin.topic_config(master, "topics-changed")
        assert changed is not None
        assert (changed.read_queue_nums, changed.write_queue_nums) == (6, 6)
        assert await self.admin.topic_config(master, "topics-deleted") is None
        await self.admin.create_topic("topics-new", 1, 1)
        await self.send([b"new"], "topics-new")
        assert await self.stored("topics-new") == [b"new"]


class Conversion(Feature):
    name = "conversion"

    async def before(self) -> None:
        await self.send(numbered(0, 40))
        [master] = await self.admin.masters()
        await self.admin.convert_queue(master, self.topic, "start", "BatchCQ")

    async def after(self) -> None:
        await self.send(numbered(40, 60))
        assert await self.stored() == numbered(0, 60)


class Users(Feature):
    name = "users"

    async def before(self) -> None:
        await self.admin.create_user("clerk", "secret-of-the-clerk")
        await self.admin.put_acl("clerk", [AclEntry("Topic:letters", ("Pub",))])
        await self.admin.create_user("deleted", "secret-of-the-deleted")
        await self.admin.delete_user("deleted")

    async def after(self) -> None:
        for users in (await self.admin.users()).values():
            names = {user.username for user in users}
            assert ("clerk" in names, "deleted" in names) == (True, False)
        for acls in (await self.admin.acls("clerk")).values():
            [acl] = [each for each in acls if each.username == "clerk"]
            assert [entry.resource for entry in acl.entries] == ["Topic:letters"]


class Queries(Feature):
    name = "queries"

    async def before(self) -> None:
        await self.send([b"found"], keys=("old-key",))

    async def after(self) -> None:
        await self.send([b"found, too"], keys=("new-key",))
        for key, body in (("old-key", b"found"), ("new-key", b"found, too")):
            while not (found := await self.admin.find_messages(self.topic, key)):
                await asyncio.sleep(LOOK_S)
            assert {message.body for message in found} == {body}


class PythonClient(Feature):
    """A producer and a consumer that are connected all the time."""

    name = "python-client"

    async def before(self) -> None:
        self.seen: set[bytes] = set()
        self.sender = self.producer()
        await self.sender.start()

        async def listen(message: MessageExt) -> None:
            self.seen.add(message.body)

        self.receiver = self.consumer(listen)
        await self.receiver.start()
        self.ends = False
        self.sending = asyncio.create_task(self._send())

    async def _send(self) -> set[bytes]:
        sent: set[bytes] = set()
        while not self.ends:
            body = b"%d" % len(sent)
            try:
                await self.sender.send(Message(self.topic, body))
            except RaptorMQError:  # a full disk refuses sends until there is room
                await asyncio.sleep(LOOK_S)
                continue
            sent.add(body)
            await asyncio.sleep(0.01)
        return sent

    async def after(self) -> None:
        known = len(self.seen)
        while len(self.seen) < known + 50:
            await asyncio.sleep(LOOK_S)
        self.ends = True
        sent = await self.sending
        while not sent <= self.seen:
            await asyncio.sleep(LOOK_S)
        await self.receiver.stop()
        await self.sender.close()


FEATURES: Mapping[str, type[Feature]] = {
    feature.name: feature
    for feature in (
        Sends, Batches, Transactions, Delays, Retries, Requests, Pulls, Offsets, Pop, Ordered, Rebalance, Topics,
        Conversion, Users, Queries, PythonClient,
    )
}  # fmt: skip
