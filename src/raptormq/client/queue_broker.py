"""The broker of a queue: found in the route, and found again when it has moved.

In a cluster a broker that restarts often has another address; the name servers know it within seconds. One that has no
such topic, which may have been deleted, makes the route doubtful.
Neighbours: `routes` knows addresses, `pull_consumer` and `queue_reader` call. Source: RocketMQ
`findBrokerAddressInSubscribe`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from raptormq.client.routes import ROUTE_ERRORS, RouteTable
from raptormq.errors import ConnectError, ConnectionClosed, NoRoute, ServerError
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageQueue

T = TypeVar("T")


async def at_broker(
    routes: RouteTable, queue: MessageQueue, call: Callable[[str], Awaitable[T]], broker_id: int = MASTER_ID
) -> T:
    """Return what `call(address)` returns for the broker of `queue`; calls once more when the broker has moved.

    `broker_id` is the wished member of the broker group; another one takes its place when it is gone.

    Raises:
        NoRoute: the topic does not exist, or no member of the broker group is up.
        TransportError: the broker, or every name server, does not answer.
    """
    try:
        return await _at_broker(routes, queue, call, broker_id)
    except ServerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            routes.denied(queue.topic, queue.broker_name)
        raise


async def _at_broker(routes: RouteTable, queue: MessageQueue, call: Callable[[str], Awaitable[T]], broker_id: int) -> T:
    address = (await routes.find(queue.topic)).replica(queue.broker_name, broker_id)
    if address is not None:
        try:
            return await call(address)
        except (ConnectError, ConnectionClosed):
            moved = await _refreshed_address(routes, queue, broker_id)
            if moved is None or moved == address:
                raise
            return await call(moved)
    moved = await _refreshed_address(routes, queue, broker_id)
    if moved is None:
        raise NoRoute(f"no member of broker {queue.broker_name} is up")
    return await call(moved)


async def _refreshed_address(routes: RouteTable, queue: MessageQueue, broker_id: int) -> str | None:
    try:
        found = await routes.refresh(queue.topic)
    except ROUTE_ERRORS:
        return None
    return found.replica(queue.broker_name, broker_id) if found is not None else None
