"""A sender that records acknowledged messages, and checks of the stored messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from raptormq.client import ClientConfig, Message, MessageQueue, Producer, PullConsumer, SendStatus
from raptormq.errors import RaptorMQError
from tests.faults.dledger_processes import BROKER, DledgerProcesses
from tests.faults.linearizable_log import Append

QUEUES = 4
TOPIC = "ledger"
GROUP_QUEUES = tuple(MessageQueue(TOPIC, BROKER, number) for number in range(QUEUES))
"""Queues of a Dledger group."""


class Ledger:
    """Sends numbers, each once, and records those that were acknowledged, by the index of the queue."""

    def __init__(self, producer: Producer, timeout: float = 2.0, queues: Sequence[MessageQueue] = GROUP_QUEUES) -> None:
        """Create a sender that has sent nothing.

        Args:
            queues: each gets ascending numbers.
            timeout: limit of a send in seconds. A short one is for faults in which a member does not respond. A test in
                which no send may be refused needs one that a stalled machine does not exceed.
        """
        self._producer = producer
        self._timeout = timeout
        self.queues = queues
        self._next = list(range(len(queues)))
        self.acknowledged: dict[int, list[int]] = {index: [] for index in range(len(queues))}
        self.refused: list[str] = []
        self.times: list[float] = []
        """Times of the acknowledgements, in seconds of the event loop."""
        self.history: dict[int, list[Append]] = {index: [] for index in range(len(queues))}
        self._grown = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def send_with(self, producer: Producer) -> None:
        """Send the next numbers with another producer."""
        self._producer = producer

    def begin(self) -> None:
        """Send until :meth:`end`, also again."""
        self._stopping = False
        self._tasks = [asyncio.ensure_future(self._send(index)) for index in self.acknowledged]

    async def _send(self, index: int) -> None:
        clock, history, queue = asyncio.get_running_loop().time, self.history[index], self.queues[index]
        while not self._stopping:
            number = self._next[index]
            self._next[index] += len(self.queues)
            append = Append(number, clock())
            try:
                result = await self._producer.send(Message(TOPIC, b"%d" % number), queue=queue, timeout=self._timeout)
                if result.status is SendStatus.SEND_OK:
                    append = Append(number, append.invoked, clock(), result.queue_offset)
                    self.acknowledged[index].append(number)
                    self.times.append(clock())
                    self._grown.set()
                else:
                    self.refused.append(str(result.status))
            except RaptorMQError as error:
                self.refused.append(str(error))
                await asyncio.sleep(0.02)  # there is no leader; another number is sent
            history.append(append)

    async def grow(self, more: int) -> None:
        """Wait until this many more messages are acknowledged."""
        wanted = self.count + more
        while self.count < wanted:
            self._grown.clear()
            await self._grown.wait()

    async def grow_everywhere(self, more: int) -> None:
        """Wait until this many more messages are acknowledged in each queue."""
        wanted = {index: len(own) + more for index, own in self.acknowledged.items()}
        while any(len(self.acknowledged[index]) < count for index, count in wanted.items()):
            self._grown.clear()
            await self._grown.wait()

    async def end(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


async def read_queue(consumer: PullConsumer, queue: MessageQueue) -> list[int]:
    found: list[int] = []
    offset = 0
    while messages := (result := await consumer.pull(queue, offset)).messages():
        found += [int(each.body) for each in messages]
        offset = result.next_offset
    return found


async def assert_whole(processes: DledgerProcesses, ledger: Ledger, client: ClientConfig | None = None) -> None:
    """Check that every acknowledged message can be read, once and in order, with the settings of ``client``."""
    consumer = PullConsumer(client_config=client or processes.clients())
    await consumer.start()
    try:
        for index, acknowledged in ledger.acknowledged.items():
            found = await read_queue(consumer, ledger.queues[index])
            counted = Counter(found)
            assert [number for number in acknowledged if counted[number] != 1] == []
            assert found == sorted(found)
    finally:
        await consumer.close()
