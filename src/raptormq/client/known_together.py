"""What the name servers of one installation know together.

They do not talk to each other. One that was started just now, or that some of the brokers cannot reach, lacks what
another one has; whoever believed one alone would not see these brokers. Where they contradict each other, the one that
the client is with is believed.
Neighbours: `name_servers` asks; `told_routes` and `admin` want to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TypeVar

from raptormq.client.answers import require_success
from raptormq.client.name_servers import NameServers
from raptormq.errors import BodyError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import ClusterInfo, TopicList, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.route import RouteRequestHeader

log = get_logger(__name__)

T = TypeVar("T")

_NAME_SERVER = "name server"


async def route_of(name_servers: NameServers, topic: str) -> TopicRoute | None:
    """Return where a topic is, `None` when none knows it; each has its time to answer.

    Raises:
        TransportError: none answers.
        ServerError, BodyError: none has a good answer.
    """
    return _together(await routes_told(name_servers, topic, patiently=True), TopicRoute.with_others_of)


async def routes_told(
    name_servers: NameServers, topic: str, *, patiently: bool = False
) -> dict[str, TopicRoute | None]:
    """Return where a topic is by address of each name server that has a good answer, first the one that is believed;
    raises as `route_of`.
    """
    return await _good_answers(name_servers, lambda: route_request(topic), route_in, patiently=patiently)


async def cluster_of(name_servers: NameServers, *, patiently: bool = False) -> ClusterInfo:
    """Return all broker groups; `patiently` as in `NameServers.ask_all`, raises as `route_of`."""

    def read(answer: RemotingCommand) -> ClusterInfo:
        return ClusterInfo.from_json(require_success(answer, _NAME_SERVER).body)

    command = RequestCode.GET_BROKER_CLUSTER_INFO
    found = await _good_answers(name_servers, lambda: request(command), read, patiently=patiently)
    return _together(found, ClusterInfo.with_others_of) or ClusterInfo()


async def topics_of(name_servers: NameServers) -> set[str]:
    """Return the names of all topics; raises as `route_of`."""

    def read(answer: RemotingCommand) -> set[str]:
        return set(TopicList.from_json(require_success(answer, _NAME_SERVER).body).topics)

    command = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    return _together(await _good_answers(name_servers, lambda: request(command), read), set.union) or set()


def route_request(topic: str) -> RemotingCommand:
    """Return the question where a topic is."""
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequestHeader(topic, True))


def route_in(answer: RemotingCommand, name_server: str = _NAME_SERVER) -> TopicRoute | None:
    """Return the route that a name server has answered with, `None` where it knows none.

    Raises:
        ServerError, BodyError: it is no such answer.
    """
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return TopicRoute.from_json(require_success(answer, name_server).body)


async def _good_answers(
    name_servers: NameServers,
    command: Callable[[], RemotingCommand],
    read: Callable[[RemotingCommand], T],
    *,
    patiently: bool = False,
) -> dict[str, T]:
    good: dict[str, T] = {}
    errors: list[ServerError | BodyError] = []
    for address, answer in (await name_servers.ask_all(command, patiently=patiently)).items():
        try:
            good[address] = read(answer)
        except (ServerError, BodyError) as error:
            log.debug("name server %s has no good answer: %s", address, error)
            errors.append(error)
    if not good:
        raise errors[0]
    return good


def _together(told: Mapping[str, T | None], join: Callable[[T, T], T]) -> T | None:
    known = [each for each in told.values() if each is not None]
    return reduce(join, known) if known else None
