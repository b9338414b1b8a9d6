"""A name server and a broker in a thread of the test process, with real sockets and real files.

The servers have an event loop of their own, so tests may use any event loop or none. The broker has a clock that tests
move: delayed messages and retries become due without waiting.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from raptormq.broker.addresses import reserve_port
from raptormq.broker.broker import Broker
from raptormq.broker.config import BrokerConfig
from raptormq.client import AdminClient, MessageExt, PullConsumer
from raptormq.client.blocking import LoopThread
from raptormq.errors import ConfigError
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer

T = TypeVar("T")

START_TIMEOUT_S = 30.0
"""Time limit of the start and of each call, in seconds."""
_HOST = "127.0.0.1"
_DEFAULTS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "bindAddress": _HOST,
    "brokerIP1": _HOST,
    "metricsPort": "-1",
    "mappedFileSizeCommitLog": "16M",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # Tests also run on volumes that are almost full.
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "98",
    "diskSpaceWarningLevelRatio": "100",
}


class EmbeddedCluster:
    """A name server and one broker; not thread-safe.

    Args:
        folder: directory of the store. By default a temporary directory, which is deleted at the end.
        settings: settings of the broker as in broker.conf, for example ``autoCreateTopicEnable="true"``.

    Raises:
        ConfigError: a setting is invalid.
    """

    def __init__(self, folder: Path | None = None, **settings: str) -> None:
        BrokerConfig.from_pairs(_DEFAULTS | settings)
        self._settings = settings
        self._is_temporary = folder is None
        self._folder = folder or Path(tempfile.gettempdir(), f"raptormq-{secrets.token_hex(8)}")
        self._shift_ms = 0
        self._thread: LoopThread | None = None
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None
        self._port: socket.socket | None = None
        """Keeps the port of the broker for it while the broker is stopped."""

    # --- start and stop ---

    def start(self) -> Self:
        """Start the servers and wait until the broker is registered.

        Raises:
            RaptorMQError, OSError: a server cannot start.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread = LoopThread("raptormq-cluster")
        try:
            self._port = reserve_port(_HOST)
            self._call(self._start_name_server())
            self.start_broker()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the servers and delete the temporary directory."""
        if self._thread is None:
            return
        if self._broker is not None:
            self.stop_broker()
        if self._name_server is not None:
            self._call(self._name_server.stop())
            self._name_server = None
        if self._port is not None:
            self._port.close()
            self._port = None
        self._thread.stop()
        self._thread = None
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # --- faults ---

    def stop_broker(self) -> None:
        """Stop the broker, as in an outage. Its store remains, and :meth:`start_broker` starts it on the same port."""
        broker, self._broker = self._running_broker(), None
        self._call(broker.stop())

    def start_broker(self) -> None:
        """Start the broker again and wait until it is registered.

        Raises:
            ConfigError: the broker is running.
        """
        if self._broker is not None:
            raise ConfigError("the embedded broker is running")
        self._broker = self._call(self._start_broker())

    def advance(self, seconds: float) -> None:
        """Move the clock of the broker forward. Delayed messages, retries and timers that are due then are delivered
        within about a second.

        Raises:
            ConfigError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ConfigError(f"the clock of the embedded broker must move forward, not by {seconds} s")
        self._shift_ms += round(seconds * 1000)

    # --- content ---

    @property
    def name_servers(self) -> str:
        """The address for ``name_servers=`` of clients."""
        if self._name_server is None:
            raise ConfigError("the embedded cluster is not started")
        return self._name_server.address

    def create_topic(self, topic: str, queues: int = 4, attributes: Mapping[str, str] | None = None) -> None:
        """Create a topic, or change it if it exists.

        Raises:
            MessageError, ServerError: the name or an attribute is invalid.
        """

        async def create(admin: AdminClient) -> None:
            await admin.create_topic(topic, queues, queues, attributes=attributes)

        self._with_admin(create)

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all stored messages of a topic in the order in which they were stored.

        Raises:
            NoRoute: the topic does not exist.
        """
        return sorted(self._call(self._read(topic, self.name_servers)), key=lambda message: message.physical_offset)

    def lag(self, group: str, topic: str) -> int:
        """Return the number of messages of a topic that a consumer group has not consumed.

        Raises:
            MessageError: the group name is invalid.
        """

        async def ask(admin: AdminClient) -> int:
            return sum(progress.lag for progress in (await admin.group_progress(group, topic)).values())

        return self._with_admin(ask)

    # --- inside ---

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._shift_ms

    async def _start_name_server(self) -> None:
        pairs = {
            "bindAddress": _HOST,
            "listenPort": "0",
            "kvConfigPath": str(self._folder / "namesrv" / "kvConfig.json"),
            "configStorePath": str(self._folder / "namesrv" / "namesrv.properties"),
        }
        name_server = NameServer(NameServerConfig.from_pairs(pairs))
        await name_server.start()
        self._name_server = name_server

    async def _start_broker(self) -> Broker:
        assert self._name_server is not None
        assert self._port is not None
        own = {
            "listenPort": str(self._port.getsockname()[1]),
            "namesrvAddr": self._name_server.address,
            "storePathRootDir": str(self._folder / "store"),
        }
        broker = Broker(BrokerConfig.from_pairs(_DEFAULTS | self._settings | own), clock=self._now_ms)
        await broker.start()
        await self._name_server.wait_for_broker(broker.address)
        return broker

    def _running_broker(self) -> Broker:
        if self._broker is None:
            raise ConfigError("the embedded broker is not running")
        return self._broker

    def _with_admin(self, run: Callable[[AdminClient], Awaitable[T]]) -> T:
        name_servers = self.name_servers

        async def call() -> T:
            async with AdminClient(name_servers=name_servers) as admin:
                return await run(admin)

        return self._call(call())

    async def _read(self, topic: str, name_servers: str) -> list[MessageExt]:
        found: list[MessageExt] = []
        async with PullConsumer(name_servers=name_servers) as consumer:
            for queue in await consumer.queues(topic):
                offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                while offset < end:
                    result = await consumer.pull(queue, offset)
                    found += result.messages()
                    offset = result.next_offset
        return found

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._thread is not None
        return self._thread.run(work, START_TIMEOUT_S)
