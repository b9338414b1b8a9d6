"""What each name server has told last of the topics in use, for the time in which one does not answer.

It may be late once, or restart, while the brokers that it alone knows are there all the time. A member of a group that
gave up their queues would divide others than the other members do, and nobody would read some of them. So what it has
told last counts until it tells something else, but for brokers that another one knew and does not tell any more, and
no longer than name servers themselves wait for a broker: one that is gone, with brokers on the same machine perhaps,
must not keep those.
Neighbours: `known_together` asks, `routes` keeps what clients make of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from raptormq.client.known_together import routes_told
from raptormq.client.name_servers import NameServers
from raptormq.protocol.bodies.route import TopicRoute

_KEPT_S = 120.0
"""RocketMQ's `DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`."""


class _Told(NamedTuple):
    route: TopicRoute
    at: float
    """Loop time."""


class ToldRoutes:
    """Routes as the name servers of one installation know them together, those that do not answer included."""

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._told: dict[str, dict[str, _Told]] = {}
        """By topic and address of the name server."""

    async def ask(self, topic: str) -> TopicRoute | None:
        """Return where a topic is, `None` when no name server that answers knows it.

        Raises: as `known_together.route_of`.
        """
        answers = await routes_told(self._name_servers, topic)
        now = asyncio.get_running_loop().time()
        before = self._told.get(topic, {})
        told = {address: _Told(route, now) for address, route in answers.items() if route is not None}
        gone = _members(before[address].route for address in told.keys() & before.keys())
        gone -= _members(each.route for each in told.values())
        silent = {
            address: last._replace(route=_without(gone, last.route))
            for address, last in before.items()
            if address not in answers and now - last.at < _KEPT_S
        }
        known = told | silent
        if known:
            self._told[topic] = known
        else:
            self._told.pop(topic, None)
        return reduce(TopicRoute.with_others_of, (each.route for each in known.values())) if told else None

    def forget(self, topic: str) -> None:
        """A topic was deleted: nothing that was told of it counts when it is made again."""
        self._told.pop(topic, None)


def _members(routes: Iterable[TopicRoute]) -> set[tuple[str, int]]:
    """Return the members of brokers: name and broker id."""
    brokers = (broker for route in routes for broker in route.brokers)
    return {(broker.broker_name, broker_id) for broker in brokers for broker_id in broker.broker_addrs}


def _without(gone: Collection[tuple[str, int]], route: TopicRoute) -> TopicRoute:
    brokers = []
    for broker in route.brokers:
        name, addresses = broker.broker_name, broker.broker_addrs
        if left := {broker_id: at for broker_id, at in addresses.items() if (name, broker_id) not in gone}:
            brokers.append(replace(broker, broker_addrs=left))
    names = {broker.broker_name for broker in brokers}
    return replace(route, brokers=brokers, queues=[queue for queue in route.queues if queue.broker_name in names])
