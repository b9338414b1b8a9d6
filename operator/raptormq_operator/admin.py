"""The few questions that the operator asks name servers and brokers, over `raptormq.client.AdminClient`.

`Admin` is the seam that tests replace; `ClientAdmin` is the only place where the operator uses the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from raptormq.client import AdminClient

Listing = Mapping[tuple[str, str, int], str]
"""(cluster name, broker name, broker id) -> address, as a name server lists them."""


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What a broker says about a topic (GET_TOPIC_CONFIG, 351)."""

    read_queues: int
    write_queues: int
    perm: int
    attributes: Mapping[str, str]


class Admin(Protocol):
    """Every call is bounded in time and raises only `raptormq.errors.RaptorMQError`."""

    async def listed_brokers(self, name_server: str) -> Listing:
        """Brokers that a name server lists (106)."""

    async def check_broker(self, broker: str) -> None:
        """Returns when the broker answers a request (28)."""

    async def topic(self, broker: str, topic: str) -> TopicAnswer | None:
        """The topic as the broker has it (351); None when it has no such topic."""

    async def change_topic(self, broker: str, topic: str, wanted: TopicAnswer) -> None:
        """Creates or changes the topic on one broker (17)."""

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        """Deletes the topic from every broker that is registered, and from the name servers (215, 216)."""


class ClientAdmin:
    """`Admin` over the network. Use as an asynchronous context manager."""

    def __init__(self) -> None:
        self._client = AdminClient()

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def listed_brokers(self, name_server: str) -> Listing:
        info = await self._client.cluster_info(name_server)
        return {
            (group.cluster, group.broker_name, broker_id): address
            for group in info.brokers.values()
            for broker_id, address in group.broker_addrs.items()
        }

    async def check_broker(self, broker: str) -> None:
        await self._client.runtime_info(broker)

    async def topic(self, broker: str, topic: str) -> TopicAnswer | None:
        config = await self._client.topic_config(broker, topic)
        if config is None:
            return None
        return TopicAnswer(config.read_queue_nums, config.write_queue_nums, int(config.perm), dict(config.attributes))

    async def change_topic(self, broker: str, topic: str, wanted: TopicAnswer) -> None:
        await self._client.create_topic(
            topic,
            wanted.read_queues,
            wanted.write_queues,
            perm=wanted.perm,
            attributes=wanted.attributes,
            brokers=[broker],
        )

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        async with AdminClient(name_servers=name_servers) as client:
            await client.delete_topic(topic)
