"""Who belongs to a consumer group, as the brokers of its topics know it.

The members that any broker of a topic knows count. One that restarts knows nobody when it comes back: while the own
connection to a broker is new, members from before the loss of a connection count, too, who have not been seen since.
Only brokers that answer are heard: what a frozen one may know of somebody who is gone must not keep others from his
queues, for as long as it is frozen. Nor is it waited for, where another one has answered.
Neighbours: `rebalancing` divides queues among members. Source: RocketMQ `findConsumerIdList`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from raptormq.client.answers import require_success
from raptormq.client.background import background
from raptormq.client.heartbeats import PATIENCE_S
from raptormq.client.instance import ClientInstance
from raptormq.client.topic_queues import TopicQueues
from raptormq.errors import NoRoute, RaptorMQError, RequestTimeout, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.heartbeat import decode_consumer_ids
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader

log = get_logger(__name__)


class GroupMembers:
    """The members of one group, besides the client of `instance` itself."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._answers: dict[str, list[str]] = {}
        """By address of a broker that has answered, whom it knows."""
        self._failures: dict[str, RaptorMQError] = {}
        """By address, why one has not."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._not_back: dict[str, set[str]] = {}
        """By topic, members from before that nobody knew since."""

    def connection_lost(self, before: Mapping[str, Collection[str]]) -> None:
        """A broker may have forgotten those who were members before, by topic."""
        self._not_back = {topic: set(members) for topic, members in before.items()}

    def ask(self, topics: Collection[TopicQueues]) -> None:
        """Ask the brokers of all these topics anew."""
        self.stop()
        self._answers, self._failures = {}, {}
        addresses = {address for found in topics for address in _addresses(found)}
        name = f"members of {self._group}"
        self._asking = {address: background(self._ask_one(address), name) for address in sorted(addresses)}

    def stop(self) -> None:
        """Ask no more."""
        for asking in self._asking.values():
            asking.cancel()

    async def of(self, found: TopicQueues) -> list[str]:
        """Return who belongs to the group as far as a topic is concerned, of which brokers were asked.

        Waits a second for those that do not answer, and `ClientConfig.request_timeout` where none does.

        Raises:
            RaptorMQError: no broker of the topic has answered.
        """
        asked = _addresses(found)
        late = {self._asking[at] for at in asked if not self._asking[at].done()}
        if late:
            _, late = await asyncio.wait(late, timeout=PATIENCE_S)  # the others know the same members, but for a moment
        while late and not any(at in self._answers for at in asked):
            _, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        heard = [at for at in asked if at in self._answers]
        if not heard:
            raise next((self._failures[at] for at in asked), NoRoute(f"no broker of topic {found.topic} is up"))
        members = set[str]().union(*(self._answers[at] for at in heard))
        not_back = self._not_back.pop(found.topic, set()) - members
        if not_back and any(map(self._instance.is_new, heard)):
            log.info("group %s: of its members %s are not back yet", self._group, ", ".join(sorted(not_back)))
            self._not_back[found.topic] = not_back
            members |= not_back
        return sorted(members)

    async def _ask_one(self, address: str) -> None:
        timeout = self._instance.config.request_timeout
        try:
            async with asyncio.timeout(timeout):
                members = await self._members_at(address, timeout)
                if self._instance.client_id not in members:
                    # It was restarted, or hears of this client just now. All others are not told: one that is frozen
                    # would be waited for.
                    await self._instance.heartbeats.tell(address)
                    members = await self._members_at(address, timeout)
        except TimeoutError:
            self._failures[address] = RequestTimeout(f"broker {address} did not say who is there within {timeout:g} s")
        except RaptorMQError as error:
            self._failures[address] = error
        else:
            self._answers[address] = members

    async def _members_at(self, address: str, timeout: float) -> list[str]:
        command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(self._group))
        answer = await self._instance.pool.request(address, command, timeout)
        try:
            return decode_consumer_ids(require_success(answer, address).body)
        except ServerError as error:
            log.info("broker %s knows no member of %s yet: %s", address, self._group, error)
            return []


def _addresses(found: TopicQueues) -> list[str]:
    return [address for name in found.brokers if (address := found.replica(name)) is not None]
