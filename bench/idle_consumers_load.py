"""Load of `bench idle-consumers`: consumers that implement the protocol directly, because a thousand Java clients do
not fit on one machine.

    python -m bench.idle_consumers_load HOST:PORT GROUPS

The process prints "connected" when every consumer has sent its heartbeat and waits in a pull. It then continues
until it is stopped.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Mapping
from typing import cast

import uvloop

from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import CommandFlag, RemotingCommand, decode, encode
from raptormq.protocol.frame import FrameDecoder

GROUP_SIZE = 10
TOPIC = "idle"
HEARTBEAT_S, MEMBERS_S, PROGRESS_S, HOLD_MS = 30.0, 20.0, 5.0, 15_000
_AT_ONCE = 100
_ENOUGH_S = 60.0


class Consumer(asyncio.Protocol):
    """A consumer of one queue."""

    def __init__(self, group: int, number: int) -> None:
        self._group = f"group-{group:03}"
        self._queue = number
        self._client = f"127.0.0.1@{group}-{number}"
        self._opaque = 0
        self._pull = -1
        self._frames = FrameDecoder()
        self._transport: asyncio.WriteTransport | None = None
        self.waits = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # the transport of uvloop is no subclass
        self._every(HEARTBEAT_S, self._heartbeat)
        self._every(MEMBERS_S, self._members)
        self._every(PROGRESS_S, self._progress)
        self._ask_for_messages()

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            answer = decode(frame)
            if answer.opaque == self._pull and answer.is_response:
                self._ask_for_messages()
        self.waits.set()

    def connection_lost(self, exc: Exception | None) -> None:
        raise SystemExit(f"the broker has closed the connection of {self._client}: {exc}")

    def _every(self, seconds: float, what: Callable[[], None], *, first: bool = True) -> None:
        if first:
            what()
        delay = seconds * random.random() if first else seconds

        def again() -> None:
            what()
            self._every(seconds, what, first=False)

        asyncio.get_running_loop().call_later(delay, again)

    def _send(self, code: int, fields: Mapping[str, object], body: bytes = b"", flag: int = 0) -> int:
        assert self._transport is not None
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        self._transport.write(encode(RemotingCommand(code, texts, body, opaque=self._opaque, flag=flag)))
        return self._opaque

    def _heartbeat(self) -> None:
        subscriptions = [Subscription.parse(topic, "*", 1) for topic in (TOPIC, f"%RETRY%{self._group}")]
        data = HeartbeatData(self._client, [], [ConsumerData(self._group, subscriptions=subscriptions)])
        self._send(RequestCode.HEART_BEAT, {}, data.to_json())

    def _members(self) -> None:
        self._send(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group})

    def _progress(self) -> None:
        place = {"consumerGroup": self._group, "topic": TOPIC, "queueId": self._queue, "commitOffset": 0}
        self._send(RequestCode.UPDATE_CONSUMER_OFFSET, place, flag=CommandFlag.ONEWAY)

    def _ask_for_messages(self) -> None:
        fields = {
            "consumerGroup": self._group, "topic": TOPIC, "queueId": self._queue, "queueOffset": 0, "maxMsgNums": 32,
            "sysFlag": 3, "commitOffset": 0, "suspendTimeoutMillis": HOLD_MS, "subVersion": 1, "expressionType": "TAG",
        }  # fmt: skip
        self._pull = self._send(RequestCode.PULL_MESSAGE, fields)


async def main(address: str, groups: int) -> None:
    """Connect all consumers and keep them running."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    await _create_topic(host, int(port))
    slots = asyncio.Semaphore(_AT_ONCE)

    async def connect(group: int, number: int) -> None:
        async with slots:
            _, consumer = await loop.create_connection(lambda: Consumer(group, number), host, int(port))
            async with asyncio.timeout(_ENOUGH_S):
                await consumer.waits.wait()

    async with asyncio.TaskGroup() as tasks:
        for group in range(groups):
            for number in range(GROUP_SIZE):
                tasks.create_task(connect(group, number))
    print("connected", flush=True)
    await asyncio.Event().wait()


async def _create_topic(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(GROUP_SIZE), "writeQueueNums": str(GROUP_SIZE),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    writer.write(encode(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, opaque=1)))
    await reader.readexactly(4)
    writer.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
