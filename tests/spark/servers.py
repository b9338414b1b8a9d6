"""A name server, and a broker that tests of the Spark connector kill and start again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen

from raptormq.client import AdminClient, PullConsumer
from tests.faults.broker_process import process, serving


class Servers:
    """A name server, and a broker that can be killed and started again on its port and store."""

    def __init__(self, folder: Path, ports: list[int], more: dict[str, str] | None = None) -> None:
        """`more` are settings of the broker."""
        self._folder = folder
        self._name_server_port, self._broker_port = ports
        self._more = {"stagedMessagesEnable": "true"} | (more or {})
        self.name_server = f"127.0.0.1:{self._name_server_port}"

    @asynccontextmanager
    async def names(self) -> AsyncIterator[None]:
        """Run the name server."""
        settings: dict[str, object] = {"listenPort": self._name_server_port, "bindAddress": "127.0.0.1"}
        settings |= {name: self._folder / name for name in ("kvConfigPath", "configStorePath")}
        config = self._folder / "namesrv.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        async with serving(["namesrv", "-c", str(config), "--log-level", "error"]):
            yield

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[Popen[bytes]]:
        """Run the broker."""
        pairs = {"namesrvAddr": self.name_server, "brokerIP1": "127.0.0.1"} | self._more
        async with process(self._folder, self._broker_port, pairs) as server:
            yield server

    async def create(self, *topics: str, queues: int = 4) -> None:
        """Create topics."""
        async with AdminClient(name_servers=self.name_server) as admin:
            for topic in topics:
                await admin.create_topic(topic, queues, queues)


async def stored(name_server: str, topic: str) -> Counter[bytes]:
    """All bodies of a topic."""
    found: Counter[bytes] = Counter()
    async with PullConsumer(name_servers=name_server) as consumer:
        for queue in await consumer.queues(topic):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, 1000)
                found.update(message.body for message in result.messages())
                offset = result.next_offset
    return found
