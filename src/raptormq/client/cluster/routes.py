"""Route cache of a client. Routes are fetched on first use and refreshed every 30 s and after failures.

Messages to an unknown topic use the route of the default topic (TBW102). The broker creates and registers the topic,
and a later refresh gets its own route. Concurrent callers for one topic share one request.

A cached route remains valid until a name server returns another one, because a restarted name server has no routes
until the brokers have registered again. A topic counts as deleted only if every broker of its route reports that it
does not exist and no name server has it.

The routes of all name servers are merged, so that a broker that is registered at only one of them is found by all
clients. Otherwise the members of a group would have different views of the queues, and some queues would have no
reader. See also: `cluster.metadata` asks the name servers, `cluster.topic_route` interprets routes. Source: RocketMQ
`MQClientInstance.updateTopicRouteInfoFromNameServer`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster.metadata import RouteCache
from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.topic_route import TopicQueues, topic_queues
from raptormq.errors import BodyError, NoRoute, RaptorMQError, ServerError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import TopicRoute
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC, is_derived_topic
from raptormq.transport.shared_task import SharedTask

log = get_logger(__name__)

ROUTE_ERRORS = TransportError, ServerError, BodyError
"""Errors of a route request: no name server responded, all returned errors, or a response was invalid."""
_CLOSED = "the client is closed"
_MAX_CONCURRENT = 32
"""Maximum number of concurrent refreshes, so that bursts do not delay other requests at the name servers."""
_REFRESH_PAUSE_S = 1.0
_MISSING_PAUSE_S = 0.1
_MISSING_PAUSE_MAX_S = 30.0
"""Maximum pause between requests for a topic without a route; equals the refresh interval of topics in use."""
_DENIAL_VALID_S = 10.0
"""Seconds for which a broker's report of a missing topic is valid. Clients contact every broker of a topic more often.
"""


class RouteTable:
    """Cached routes by topic.

    Args:
        name_servers: the name servers to ask.
        changed: called with each route that is new or has changed.
    """

    def __init__(self, name_servers: NameServers, changed: Callable[[TopicQueues], None]) -> None:
        self._cache = RouteCache(name_servers)
        self._changed = changed
        self._routes: dict[str, TopicQueues] = {}
        self._default_routes: dict[str, TopicQueues] = {}
        self._denied: dict[str, dict[str, float]] = {}
        """Loop time at which each broker reported a missing topic, by topic."""
        self._fetches: dict[str, SharedTask[TopicQueues | None]] = {}
        self._awaited_routes: dict[str, asyncio.Task[None]] = {}
        self._default_fetch: SharedTask[TopicRoute | None] | None = None
        """Request for the route of the default topic."""
        self._next_fetch_at: dict[str, float] = {}

    def cached(self, topic: str) -> TopicQueues | None:
        """Return the cached route without a request, for the hot path of producers."""
        return self._routes.get(topic) or self._default_routes.get(topic)

    @property
    def uses_default_route(self) -> bool:
        """Whether a topic in use has no route of its own yet."""
        return bool(self._default_routes)

    def note_sent(self, topic: str) -> None:
        """Record a successful send; a topic without its own route will be registered soon."""
        if topic in self._default_routes and topic not in self._awaited_routes:
            expected = self._awaited_routes[topic] = background(self._await_route(topic), f"route of {topic} to come")
            expected.add_done_callback(lambda _: self._awaited_routes.pop(topic, None))

    def all_cached(self) -> list[TopicQueues]:
        """Return the cached routes, except those of the default topic."""
        return list(self._routes.values())

    async def find(self, topic: str) -> TopicQueues:
        """Return the route of an existing topic.

        Raises:
            NoRoute: no name server knows the topic.
            TransportError: no name server responds.
        """
        route = self._routes.get(topic) or await self.refresh(topic)
        if route is None:
            raise NoRoute.to(topic)
        return route

    async def find_for_sending(
        self, topic: str, default_topic_queues: int, deadline: float | None = None
    ) -> TopicQueues:
        """Return the route for sending to a topic; that of the default topic if the topic does not exist yet.

        Raises:
            NoRoute: the topic does not exist and brokers do not create topics automatically, or no broker can be
                written.
            TransportError: no name server responds.
            TimeoutError: The deadline (loop time) was reached.
        """
        route = self._routes.get(topic)
        if route is None or not route.write_queues:  # after a fail-over, a cached route may not have the new master
            route = await self.refresh(topic, deadline)
        if route is None:
            # A broker that registered between the two requests may have the topic with fewer queues.
            most_queues = 1 if is_derived_topic(topic) else default_topic_queues
            borrowed = await self._default_route_for(topic, most_queues, deadline)
            if borrowed is None:
                raise NoRoute(f"{NoRoute.to(topic)}, and no broker creates topics automatically")
            route = await self.refresh(topic, deadline)
            if route is None:
                route = borrowed
                if borrowed.write_queues:
                    self._default_routes[topic] = borrowed
        if not route.write_queues:
            raise NoRoute(
                f"no broker accepts messages for topic {topic}: no master is up, or the topic is not writable"
            )
        return route

    async def refresh(self, topic: str, deadline: float | None = None) -> TopicQueues | None:
        """Fetch the route now and return it; None if no name server has the topic.

        Args:
            topic: the topic.
            deadline: loop time at which waiting ends; the request continues in the background.

        Raises:
            ROUTE_ERRORS: the cached route stays.
            TimeoutError: the deadline came first.
            ClientClosed: `close` was called in the meantime.
        """
        return await (self._fetches.get(topic) or self._begin_fetch(topic)).wait(deadline)

    def _begin_fetch(self, topic: str) -> SharedTask[TopicQueues | None]:
        fetch = self._fetches[topic] = SharedTask(self._fetch(topic), f"route of {topic}", _CLOSED)
        fetch.task.add_done_callback(lambda task: self._fetch_done(topic, task))
        return fetch

    async def refresh_within(self, topics: Iterable[str], seconds: float) -> None:
        """Refresh routes older than one second, the oldest first. Wait up to `seconds`; responses that arrive later
        still update the cache.
        """
        due_at = {topic: self._next_fetch_at.get(topic, 0.0) for topic in topics}
        now = asyncio.get_running_loop().time()
        due = sorted((topic for topic, at in due_at.items() if at <= now), key=due_at.__getitem__)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._refresh_many(due)

    def refresh_soon(self, topic: str) -> None:
        """Refresh a route in the background, at most once a second per topic, ten times for a topic without a route."""
        if topic not in self._fetches and asyncio.get_running_loop().time() >= self._next_fetch_at.get(topic, 0.0):
            self._begin_fetch(topic)

    def note_missing(self, topic: str, broker_name: str) -> None:
        """Record that a broker does not have a topic; see the module docstring for deleted topics."""
        self._denied.setdefault(topic, {})[broker_name] = asyncio.get_running_loop().time()
        self.refresh_soon(topic)

    async def refresh_all(self) -> None:
        """Refresh the routes of all topics in use. Failures are logged, and the cached routes are kept."""
        for topic, error in (await self._refresh_many([*self._routes, *self._default_routes])).items():
            log.warning("the route of %s was not refreshed: %s", topic, error)

    async def _refresh_many(self, topics: Collection[str]) -> dict[str, RaptorMQError]:
        """Refresh routes with bounded concurrency. Return the failures."""
        waiting = deque(topics)
        failures: dict[str, RaptorMQError] = {}
        unanswered = 0  # in a row

        async def ask() -> None:
            nonlocal unanswered
            # A restarting name server fails all pending requests. If the next requests fail, too, no name server is
            # available.
            while waiting and unanswered <= _MAX_CONCURRENT:
                topic = waiting.popleft()
                try:
                    await self.refresh(topic)
                    unanswered = 0
                except RaptorMQError as error:
                    failures[topic] = error
                    unanswered = 0 if isinstance(error, ServerError | BodyError) else unanswered + 1

        await asyncio.gather(*(ask() for _ in range(min(_MAX_CONCURRENT, len(topics)))))
        if waiting:
            log.warning("no name server responds: the routes of %d more topics were not refreshed", len(waiting))
        return failures

    async def close(self) -> None:
        """Cancel all requests."""
        await cancel_all(self._awaited_routes.values())
        for fetch in list(self._fetches.values()):
            fetch.task.cancel()
        if self._default_fetch is not None:
            self._default_fetch.task.cancel()

    async def _await_route(self, topic: str) -> None:
        # The broker answers a send before the name servers know the topic, and no other send may follow for long;
        # without the topic's own route the broker gets no heartbeats, so it cannot check transactions.
        pause = _MISSING_PAUSE_S
        while topic in self._default_routes and pause < _MISSING_PAUSE_MAX_S:
            try:
                if await self.refresh(topic) is not None:
                    return
            except RaptorMQError as error:
                log.debug("no route for topic %s yet: %s", topic, error)
            await asyncio.sleep(pause)
            pause *= 2

    async def _fetch(self, topic: str) -> TopicQueues | None:
        found = await self._cache.ask(topic)
        now = asyncio.get_running_loop().time()
        pause = _MISSING_PAUSE_S if found is None else _REFRESH_PAUSE_S
        self._next_fetch_at[topic] = now + pause
        if found is None:
            known, denials = self._routes.get(topic), self._denied.get(topic, {})
            if known is not None and all(
                now - denials.get(name, -math.inf) < _DENIAL_VALID_S for name in known.brokers
            ):
                self._routes.pop(topic)
                self._denied.pop(topic, None)
                self._cache.forget(topic)
            if (borrowed := self._default_routes.get(topic)) is not None:  # its brokers may have moved
                with suppress(*ROUTE_ERRORS):
                    moved = await self._default_route_for(
                        topic, 1 + max(queue.queue_id for queue in borrowed.write_queues)
                    )
                    if moved is not None and moved.write_queues:
                        self._default_routes[topic] = moved
            return None
        route = topic_queues(topic, found)
        self._default_routes.pop(topic, None)
        self._denied.pop(topic, None)
        if self._routes.get(topic) != route:
            self._routes[topic] = route
            self._changed(route)
        return route

    async def _default_route_for(
        self, topic: str, most_queues: int, deadline: float | None = None
    ) -> TopicQueues | None:
        """Return the route for a topic that does not exist, which is that of the default topic; None if no name server
        has the default topic.
        """
        if self._default_fetch is None or self._default_fetch.task.done():  # many sends may wait for the same topic
            self._default_fetch = SharedTask(self._cache.ask(AUTO_CREATE_TOPIC), "route of the default topic", _CLOSED)
        found = await self._default_fetch.wait(deadline)
        return topic_queues(topic, found, most_queues=most_queues) if found is not None else None

    def _fetch_done(self, topic: str, fetch: asyncio.Task[TopicQueues | None]) -> None:
        self._fetches.pop(topic, None)
        if not fetch.cancelled() and (error := fetch.exception()) is not None:
            log.debug("no route of %s: %s", topic, error)  # callers that waited get the error too; perhaps none did
