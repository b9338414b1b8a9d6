"""Merged metadata of all name servers of one cluster, including the cached responses of unresponsive ones.

Name servers do not communicate with each other. A name server that has just started, or that some brokers cannot reach,
lacks these brokers, so a client must not rely on a single name server. `routes_by_name_server`, `fetch_route`,
`fetch_cluster` and `fetch_topics` query all name servers and merge the responses. If responses contradict each other,
the response of the current name server takes precedence.

`RouteCache` keeps the last response of each name server for the topics in use. A name server may be slow or restart
while brokers that are registered only there are running. If a member of a group revoked the queues of these brokers,
its view would differ from that of the other members, and some queues would have no reader. The last response of an
unresponsive name server therefore remains valid until its next response, with two exceptions:

- A broker that another name server has returned, but no longer returns, is removed.
- The response expires when name servers themselves would expire a broker, because a broker that is down, perhaps on the
  same machine, must not keep its queues.

`require_success` turns a response with an error code into an exception, for all requests of the client.

See also: `cluster.name_servers` sends requests; `cluster.routes` caches the routes of topics; `admin.client` asks for
topics and brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple, TypeVar

from raptormq.client.cluster.name_servers import NameServers
from raptormq.errors import BodyError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import ClusterInfo, TopicList, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.route import ClusterInfoRequestHeader, RouteRequestHeader

log = get_logger(__name__)


def require_success(response: RemotingCommand, peer: str) -> RemotingCommand:
    """Return the response if its code is 0.

    Raises:
        ServerError: any other code, with the remark of the peer.
    """
    if response.code != ResponseCode.SUCCESS:
        raise ServerError(response.code, response.remark, peer)
    return response


_KEPT_S = 120.0
"""Seconds for which the last response of an unresponsive name server is valid; equals RocketMQ's
`DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`.
"""


class _CachedRoute(NamedTuple):
    route: TopicRoute
    at: float
    """Loop time."""


class RouteCache:
    """The merged routes of all name servers, including cached ones of those that do not respond."""

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._cached: dict[str, dict[str, _CachedRoute]] = {}
        """By topic and address of the name server."""

    async def ask(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic; None if no responding name server has the topic.

        Raises: as `fetch_route`.
        """
        responses = await routes_by_name_server(self._name_servers, topic)
        now = asyncio.get_running_loop().time()
        before = self._cached.get(topic, {})
        fresh = {address: _CachedRoute(route, now) for address, route in responses.items() if route is not None}
        gone = _members(before[address].route for address in fresh.keys() & before.keys())
        gone -= _members(each.route for each in fresh.values())
        silent = {
            address: last._replace(route=_without(gone, last.route))
            for address, last in before.items()
            if address not in responses and now - last.at < _KEPT_S
        }
        known = fresh | silent
        if known:
            self._cached[topic] = known
        else:
            self._cached.pop(topic, None)
        return reduce(TopicRoute.merged_with, (each.route for each in known.values())) if fresh else None

    def forget(self, topic: str) -> None:
        """Drop the cached responses for a deleted topic, so that they are not used after it is recreated."""
        self._cached.pop(topic, None)


def _members(routes: Iterable[TopicRoute]) -> set[tuple[str, int]]:
    """Return the replicas of all brokers: name and broker id."""
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


T = TypeVar("T")

_NAME_SERVER = "name server"


async def fetch_route(name_servers: NameServers, topic: str) -> TopicRoute | None:
    """Return the route of a topic; None if no name server has the topic. Each name server has the full timeout.

    Raises:
        TransportError: no name server responds.
        ServerError, BodyError: no response is valid.
    """
    return _merged(await routes_by_name_server(name_servers, topic, full_timeout=True), TopicRoute.merged_with)


async def routes_by_name_server(
    name_servers: NameServers, topic: str, *, full_timeout: bool = False
) -> dict[str, TopicRoute | None]:
    """Return the route of a topic by the address of each name server with a valid response, the current one first;
    raises as `fetch_route`.
    """
    return await _valid_responses(name_servers, lambda: route_request(topic), parse_route, full_timeout=full_timeout)


async def fetch_cluster(
    name_servers: NameServers, *, full_timeout: bool = False, with_lost: bool = False
) -> ClusterInfo:
    """Return all brokers; `full_timeout` as in `NameServers.ask_all`, raises as `fetch_route`. With `with_lost` name
    servers of RaptorMQ also return the broker groups that are not registered any more.
    """

    def decode(response: RemotingCommand) -> ClusterInfo:
        return ClusterInfo.from_json(require_success(response, _NAME_SERVER).body)

    def command() -> RemotingCommand:
        header = ClusterInfoRequestHeader(lost_brokers=True) if with_lost else None
        return request(RequestCode.GET_BROKER_CLUSTER_INFO, header)

    found = await _valid_responses(name_servers, command, decode, full_timeout=full_timeout)
    return _merged(found, ClusterInfo.merged_with) or ClusterInfo()


async def fetch_topics(name_servers: NameServers) -> set[str]:
    """Return the names of all topics; raises as `fetch_route`."""

    def decode(response: RemotingCommand) -> set[str]:
        return set(TopicList.from_json(require_success(response, _NAME_SERVER).body).topics)

    command = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    return _merged(await _valid_responses(name_servers, lambda: request(command), decode), set.union) or set()


def route_request(topic: str) -> RemotingCommand:
    """Return the request for the route of a topic."""
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequestHeader(topic, True))


def parse_route(response: RemotingCommand, name_server: str = _NAME_SERVER) -> TopicRoute | None:
    """Return the route in the response of a name server; None if the topic does not exist.

    Raises:
        ServerError: the response has another error code.
        BodyError: the body is not a route.
    """
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return TopicRoute.from_json(require_success(response, name_server).body)


async def _valid_responses(
    name_servers: NameServers,
    command: Callable[[], RemotingCommand],
    decode: Callable[[RemotingCommand], T],
    *,
    full_timeout: bool = False,
) -> dict[str, T]:
    good: dict[str, T] = {}
    errors: list[ServerError | BodyError] = []
    for address, response in (await name_servers.ask_all(command, full_timeout=full_timeout)).items():
        try:
            good[address] = decode(response)
        except (ServerError, BodyError) as error:
            log.debug("name server %s has no valid response: %s", address, error)
            errors.append(error)
    if not good:
        raise errors[0]
    return good


def _merged(fresh: Mapping[str, T | None], join: Callable[[T, T], T]) -> T | None:
    known = [each for each in fresh.values() if each is not None]
    return reduce(join, known) if known else None
