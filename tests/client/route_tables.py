"""A route table whose name server responds from a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.routes import RouteTable
from raptormq.client.cluster.topic_route import TopicQueues
from raptormq.protocol.codes import RequestCode
from raptormq.transport.pool import ConnectionPool
from tests.client.scripted_peer import ScriptedPeer

ASK = RequestCode.GET_ROUTEINFO_BY_TOPIC


@asynccontextmanager
async def table() -> AsyncIterator[tuple[RouteTable, ScriptedPeer, list[TopicQueues]]]:
    changes: list[TopicQueues] = []
    async with ScriptedPeer() as peer:
        pool = ConnectionPool()
        routes = RouteTable(NameServers(pool, [peer.address], timeout=2), changes.append)
        try:
            yield routes, peer, changes
        finally:
            await routes.close()
            await pool.close()
