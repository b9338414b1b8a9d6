"""Contents of a store that several brokers use alternately: messages are added in turns, and checked.

The expected contents come only from the senders (their messages and the returned offsets), never from reads. Each turn
adds to the same topics:

    whole                             lists and single messages of a topic of queue.type=BatchCQ
    lists, single, deflated, packed   read by offset and compared: offset, body, tag, keys, property, flag; packed has
        bodies in LZ4 and zstd
    delayed, timers, decided          delivered when they are due, or when the broker has checked their transaction, in
        any turn: each body once
    retried                           not consumed in one turn, delivered again in the next
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import lz4.frame
import zstandard

from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Delay,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.compression import decompress
from raptormq.protocol.properties import KEYS, UNIQUE_KEY, decode_properties
from raptormq.protocol.record import StoredMessage, SysFlag, iter_records
from tests.interop.raw_peer import broker_address, connected

TOPICS = {
    "whole": 4,
    "lists": 8,
    "single": 4,
    "deflated": 2,
    "packed": 1,
    "delayed": 2,
    "timers": 1,
    "decided": 2,
    "retried": 2,
}
READ_BY_OFFSET = ("whole", "lists", "single", "deflated", "packed")
WHOLE_LISTS, WHOLE_SINGLES = 200, 100
LIST_COUNT, LIST_LENGTH, SINGLE_COUNT, DEFLATED_COUNT, PACKED_COUNT = 900, 100, 9_600, 400, 100
DELAYED_COUNT, TIMER_COUNT, OPEN_COUNT, FAILED_COUNT = 300, 100, 100, 100
IN_FLIGHT = 128
GROUP = "consumers"
PULL_COUNT = 1024
SAMPLED = 50
WAIT_S = 60.0
LEVEL = 3
"""Delay of level 2 in the setting `messageDelayLevel` below, which is also the level of a first retry."""
TIMER_S = 14
SETTINGS = {
    "messageDelayLevel": "1s 5s 14s",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000",
    "recallMessageEnable": "true",
    "maxTransferCountOnMessageInMemory": str(PULL_COUNT),
    "maxTransferBytesOnMessageInMemory": "4194304",
    "mappedFileSizeCommitLog": str(32 << 20),
}
"""Settings for delays that end while the brokers alternate, pulls that return more messages, and a log of several
segments.
"""

Queue = tuple[str, int]


@dataclass
class StoreContents:
    """What the turns have added to the store."""

    queues: dict[Queue, dict[int, str]] = field(default_factory=dict)
    """Queue -> offset -> compared fields of the message, as text."""
    later: dict[str, set[bytes]] = field(default_factory=dict)
    """Topic -> bodies that must be delivered, each once."""
    recalled: set[bytes] = field(default_factory=set)
    """Bodies of the recalled messages of `timers`."""
    failed: set[bytes] = field(default_factory=set)
    """Bodies that the group could not consume in the last turn."""
    committed: dict[Queue, int] = field(default_factory=dict)
    """Offsets of the group in `lists`, from which it does not consume."""
    samples: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    """Topic, key, unique key and body of messages that must be found by both."""
    next_due: float = 0.0
    """Time of day in seconds before which no delayed message of the last turn is due."""

    @property
    def message_count(self) -> int:
        return sum(map(len, self.queues.values())) + sum(map(len, self.later.values()))

    def checksum(self) -> str:
        """Digest of everything that is read by offset."""
        return checksum(self.queues)

    def place(self, topic: str, queue_id: int, offset: int, message: Message) -> None:
        self.queues.setdefault((topic, queue_id), {})[offset] = _compared(message)


def checksum(queues: dict[Queue, dict[int, str]]) -> str:
    digest = hashlib.sha256()
    for queue in sorted(queues):
        for offset in sorted(queues[queue]):
            digest.update(f"{queue} {offset} {queues[queue][offset]}\n".encode())
    return digest.hexdigest()


def _compared(message: Message | MessageExt) -> str:
    body = message.body.hex() if len(message.body) < 64 else hashlib.sha256(message.body).hexdigest()
    return f"{body} {message.tags} {message.keys} {message.properties.get('number')} {message.flag}"


async def create_topics(name_servers: str) -> None:
    async with AdminClient(name_servers=name_servers) as admin:
        for topic, queues in TOPICS.items():
            queue_type = "BatchCQ" if topic == "whole" else "SimpleCQ"
            await admin.create_topic(topic, queues, queues, attributes={"queue.type": queue_type})
        for topic in TOPICS:
            while await admin.route(topic) is None:
                await asyncio.sleep(0.05)


# --- adding ---


async def fill(contents: StoreContents, name_servers: str, turn: str) -> None:
    """Add all kinds of messages. Delayed ones are sent last, so that the next broker must deliver them."""
    async with Producer("fillers", name_servers=name_servers) as producer:
        await _fill_lists(contents, producer, turn, "lists", LIST_COUNT)
        await asyncio.gather(
            _fill_lists(contents, producer, f"{turn}-in-list", "whole", WHOLE_LISTS),
            _fill_singles(contents, producer, turn, "whole", WHOLE_SINGLES, b"single"),
        )
        await _fill_singles(contents, producer, turn, "single", SINGLE_COUNT, b"")
        await _fill_singles(contents, producer, turn, "deflated", DEFLATED_COUNT, b"compressible " * 500)
        await _fill_packed(contents, name_servers, turn)
        await _fail_once(contents, name_servers, producer, turn)
        await _commit_progress(contents, name_servers)
        await _fill_delayed(contents, producer, turn)
    await _open_transactions(contents, name_servers, turn)


def _message(topic: str, turn: str, number: int, filling: bytes = b"") -> Message:
    body = f"{turn} {topic} {number} ".encode() + filling
    keys = (f"{turn}-{topic}-{number}", f"every-{number % 97}")
    return Message(topic, body, f"tag-{number % 7}", keys, {"number": f"№{number}"}, flag=number % 5)


async def _side_by_side(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


async def _fill_lists(contents: StoreContents, producer: Producer, turn: str, topic: str, count: int) -> None:
    async def send(number: int) -> None:
        first = number * LIST_LENGTH
        messages = [_message(topic, turn, first + each) for each in range(LIST_LENGTH)]
        sent = await producer.send_batch(messages, timeout=30)
        for offset, message in enumerate(messages, sent.queue_offset):
            contents.place(topic, sent.queue.queue_id, offset, message)

    await _side_by_side(partial(send, number) for number in range(count))


async def _fill_singles(
    contents: StoreContents, producer: Producer, turn: str, topic: str, count: int, filling: bytes
) -> None:
    async def send(number: int) -> None:
        message = _message(topic, turn, number, filling)
        sent = await producer.send(message, timeout=30)
        contents.place(topic, sent.queue.queue_id, sent.queue_offset, message)
        if number % (count // SAMPLED) == 0:
            contents.samples.append((topic, message.keys[0], sent.message_id, message.body))

    await _side_by_side(partial(send, number) for number in range(count))


async def _fill_packed(contents: StoreContents, name_servers: str, turn: str) -> None:
    """Compressed with algorithms that Java producers can be configured to use, but RaptorMQ's client does not."""
    packings = [
        (SysFlag.COMPRESSION_LZ4, lz4.frame.compress),
        (SysFlag.COMPRESSION_ZSTD, zstandard.ZstdCompressor().compress),
    ]
    async with connected(await broker_address(name_servers)) as peer:
        for number in range(PACKED_COUNT):
            message = _message("packed", turn, number, b"compressible " * 500)
            kind, compress = packings[number % 2]
            text = "".join(f"{name}\x01{value}\x02" for name, value in message.all_properties().items())
            fields = dict(zip("abcdefghij", ("packers", "packed", "TBW102", 4, 0, 0, 1, 0, "", 0), strict=True))
            fields |= {"f": int(SysFlag.COMPRESSED | kind), "h": message.flag, "i": text}
            answer = await peer.call(RequestCode.SEND_MESSAGE_V2, fields, compress(message.body))
            contents.place("packed", 0, int(answer.ext_fields["queueOffset"]), message)


async def _fill_delayed(contents: StoreContents, producer: Producer, turn: str) -> None:
    async def send(topic: str, number: int, delay: Delay) -> None:
        message = _message(topic, turn, number)
        message.delay = delay
        sent = await producer.send(message, timeout=30)
        if topic == "timers" and number % 10 == 0:
            assert sent.recall_handle is not None
            await producer.recall(topic, sent.recall_handle)
            contents.recalled.add(message.body)
        else:
            contents.later.setdefault(topic, set()).add(message.body)

    contents.next_due = time.time() + TIMER_S - 1
    due = Delay.until(time.time_ns() // 1_000_000 + TIMER_S * 1000)
    await _side_by_side(partial(send, "timers", number, due) for number in range(TIMER_COUNT))
    level = Delay.by_level(LEVEL)
    await _side_by_side(partial(send, "delayed", number, level) for number in range(DELAYED_COUNT))


async def _open_transactions(contents: StoreContents, name_servers: str, turn: str) -> None:
    """Leave transactions open. Those with even numbers must be committed when a broker sends a check."""
    async with TransactionProducer("deciders", _undecided, name_servers=name_servers) as producer:
        for number in range(OPEN_COUNT):
            message = _message("decided", turn, number)
            await producer.send_in_transaction(message, _undecided, timeout=30)
            if number % 2 == 0:
                contents.later.setdefault("decided", set()).add(message.body)


async def _undecided(_: Message | MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def _commit_progress(contents: StoreContents, name_servers: str) -> None:
    async with PullConsumer(name_servers=name_servers, group=GROUP) as consumer:
        queues = await consumer.queues("lists")
        consumer.assign(queues)
        for queue in queues:
            offset = len(contents.queues["lists", queue.queue_id]) // 2 + queue.queue_id
            consumer.seek(queue, offset)
            contents.committed["lists", queue.queue_id] = offset
        await consumer.commit()


async def _fail_once(contents: StoreContents, name_servers: str, producer: Producer, turn: str) -> None:
    """Let the group fail to consume messages. They are due again when the next broker has the store."""
    sent = {message.body: message for message in (_message("retried", turn, each) for each in range(FAILED_COUNT))}
    await asyncio.gather(*(producer.send(message, timeout=30) for message in sent.values()))
    await _consume_retried(name_servers, lambda message: message.body in sent, ConsumeResult.RECONSUME_LATER, len(sent))
    contents.failed = set(sent)


async def _consume_retried(
    name_servers: str, wanted: Callable[[MessageExt], bool], answer: ConsumeResult, count: int
) -> list[MessageExt]:
    """Consume with the group until it has received `count` wanted messages, which get this result; all others
    succeed.
    """
    received: dict[bytes, MessageExt] = {}
    enough = asyncio.Event()

    async def listener(messages: list[MessageExt]) -> ConsumeResult:
        for message in messages:
            if wanted(message):
                received[message.body] = message
        if len(received) >= count:
            enough.set()
        return answer if wanted(messages[0]) else ConsumeResult.SUCCESS

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, rebalance_interval=1.0)
    async with PushConsumer(GROUP, name_servers=name_servers, config=config) as consumer:
        consumer.subscribe("retried", "*", listener)
        await asyncio.wait_for(enough.wait(), WAIT_S)
    return list(received.values())


# --- checking ---


async def look_through(contents: StoreContents, name_servers: str, *, twice: Collection[str]) -> dict[str, Any]:
    """Return the contents that the current broker serves, in the form of `expected`. Topics in `twice` may have
    duplicates.
    """
    decided = TransactionProducer("deciders", _decide, topics=["decided"], name_servers=name_servers)
    async with decided:
        retried = asyncio.create_task(_take_retried(contents, name_servers))
        later = {topic: asyncio.create_task(_await_later(contents, name_servers, topic)) for topic in contents.later}
        queues = await _read_all(name_servers)
        found: dict[str, Any] = {
            "counts": {queue: len(items) for queue, items in sorted(queues.items())},
            "checksum": checksum(queues),
            "committed": await _committed(name_servers),
            "found by key": await _found(contents, name_servers, unique=False),
            "found by unique key": await _found(contents, name_servers, unique=True),
            "retried": await retried,
        }
        found |= {f"came later, {topic}": await task for topic, task in later.items()}
        for topic in twice:
            found[f"came later, {topic}"] = sorted(set(found[f"came later, {topic}"]))
        return found


def expected(contents: StoreContents) -> dict[str, Any]:
    """Return the expected result of `look_through`."""
    bodies = sorted(body for _, _, _, body in contents.samples)
    return {
        "counts": {queue: len(items) for queue, items in sorted(contents.queues.items())},
        "checksum": contents.checksum(),
        "committed": contents.committed,
        "found by key": bodies,
        "found by unique key": bodies,
        "retried": sorted((body, 1) for body in contents.failed),
    } | {f"came later, {topic}": sorted(bodies) for topic, bodies in contents.later.items()}


async def _decide(message: MessageExt) -> TransactionState:
    number = int(message.body.split()[2])
    return TransactionState.COMMIT if number % 2 == 0 else TransactionState.ROLLBACK


async def _read_all(name_servers: str) -> dict[Queue, dict[int, str]]:
    queues: dict[Queue, dict[int, str]] = {}

    async def read(consumer: PullConsumer, queue: MessageQueue) -> None:
        items = queues.setdefault((queue.topic, queue.queue_id), {})
        offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        while offset < end:
            pulled = await consumer.pull(queue, offset, PULL_COUNT, timeout=30)
            items |= {message.queue_offset: _compared(message) for message in pulled.messages()}
            offset = pulled.next_offset

    async with PullConsumer(name_servers=name_servers) as consumer:
        for topic in READ_BY_OFFSET:
            await asyncio.gather(*(read(consumer, queue) for queue in await consumer.queues(topic)))
    return queues


async def _await_later(contents: StoreContents, name_servers: str, topic: str) -> list[bytes]:
    """Read a topic from its start until all expected messages are found. Duplicates are returned twice."""
    bodies: list[bytes] = []
    async with PullConsumer(name_servers=name_servers) as consumer:
        queues = await consumer.queues(topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 0)
        deadline = time.monotonic() + WAIT_S
        while not contents.later[topic] <= set(bodies) and time.monotonic() < deadline:
            bodies += [message.body for message in await consumer.poll(1)]
    return sorted(bodies)


async def _take_retried(contents: StoreContents, name_servers: str) -> list[tuple[bytes, int]]:
    failed = contents.failed
    messages = await _consume_retried(
        name_servers, lambda message: message.body in failed, ConsumeResult.SUCCESS, len(failed)
    )
    return sorted((message.body, message.reconsume_times) for message in messages)


async def _committed(name_servers: str) -> dict[Queue, int | None]:
    async with PullConsumer(name_servers=name_servers, group=GROUP) as consumer:
        queues = await consumer.queues("lists")
        return {("lists", queue.queue_id): await consumer.committed(queue) for queue in queues}


async def _found(contents: StoreContents, name_servers: str, *, unique: bool) -> list[bytes]:
    """Return the bodies that are found by the keys of the samples.

    Apache RocketMQ's broker compares hashes and leaves the comparison of keys to clients, so it also returns messages
    whose keys have the same hash.
    """
    bodies = []
    async with connected(await broker_address(name_servers)) as peer:
        for topic, key, unique_key, _ in contents.samples:
            fields = {"topic": topic, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
            fields |= {"key": unique_key, "_UNIQUE_KEY_QUERY": "true"} if unique else {"key": key}
            answer = await peer.call(RequestCode.QUERY_MESSAGE, fields)
            wanted = unique_key if unique else key
            found = (record for record in iter_records(answer.body) if wanted in _names(record))
            bodies += [decompress(record.body, record.sys_flag) for record in found]
    return sorted(bodies)


def _names(record: StoredMessage) -> list[str]:
    properties = decode_properties(record.properties)
    return [properties[UNIQUE_KEY], *properties[KEYS].split()]
