"""A cluster of two broker groups with one topic, whose brokers tests kill and start again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import Popen

from raptormq.client import AdminClient, Message, MessageQueue, Producer, PullConsumer
from tests.faults.broker_process import process, serving
from tests.spark.task_progress import POLL_S

TOPIC = "cleaned"
GROUPS = ("broker-a", "broker-b")
QUEUES = 2
"""Number of queues of the topic in each group."""


class TwoGroups:
    """A name server and two brokers, each of which can be killed and started again on its port and store."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._folder = folder
        self._name_server_port = ports[0]
        self._ports = dict(zip(GROUPS, ports[1:], strict=True))
        self._opened = AsyncExitStack()
        self._brokers: dict[str, Popen[bytes]] = {}
        self.name_server = f"127.0.0.1:{self._name_server_port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all three, with the topic on both groups."""
        settings = {"listenPort": self._name_server_port, "bindAddress": "127.0.0.1"}
        settings |= {name: self._folder / name for name in ("kvConfigPath", "configStorePath")}
        config = self._folder / "namesrv.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        async with self._opened:
            await self._opened.enter_async_context(serving(["namesrv", "-c", str(config)]))
            await asyncio.gather(*map(self.start, GROUPS))
            async with AdminClient(name_servers=self.name_server) as admin:
                await admin.create_topic(TOPIC, QUEUES, QUEUES)
            yield

    async def start(self, group: str) -> None:
        """Start a broker, or start it again."""
        folder = self._folder / group
        folder.mkdir(exist_ok=True)
        settings = {"brokerName": group, "namesrvAddr": self.name_server, "stagedMessagesEnable": "true"}
        self._brokers[group] = await self._opened.enter_async_context(process(folder, self._ports[group], settings))

    async def kill(self, group: str) -> None:
        """Send SIGKILL to a broker."""
        self._brokers[group].kill()
        await asyncio.to_thread(self._brokers[group].wait)

    async def send(self, group: str, bodies: Sequence[str]) -> None:
        """Send messages to the queues of a broker group."""
        async with Producer("tests", name_servers=self.name_server) as producer:
            queues = [MessageQueue(TOPIC, group, number) for number in range(QUEUES)]
            for number, body in enumerate(bodies):
                await producer.send(Message(TOPIC, body.encode()), queue=queues[number % QUEUES])

    async def after_the_last(self, group: str) -> int:
        """Return a time in ms since 1970 after which no message of a group is stored."""
        async with PullConsumer(name_servers=self.name_server) as consumer:
            times = [
                message.store_timestamp
                for number in range(QUEUES)
                for message in (await consumer.pull(MessageQueue(TOPIC, group, number), 0, 1000)).messages()
            ]
        return max(times) + 1

    async def registered(self, *groups: str) -> None:
        """Wait until exactly these groups are registered."""
        async with AdminClient(name_servers=self.name_server) as admin:
            while set((await admin.cluster_info()).brokers) != set(groups):
                await asyncio.sleep(POLL_S)

    async def published(self, *groups: str) -> Counter[str]:
        """Return the bodies in the queues of broker groups."""
        found: Counter[str] = Counter()
        async with PullConsumer(name_servers=self.name_server) as consumer:
            for queue in await consumer.queues(TOPIC):
                if queue.broker_name not in groups:
                    continue
                offset, end = 0, await consumer.max_offset(queue)
                while offset < end:
                    result = await consumer.pull(queue, offset, 1000)
                    found.update(message.body.decode() for message in result.messages())
                    offset = result.next_offset
        return found
