"""The routes a client knows: fetched when first needed, refreshed every 30 s and after failures.

A topic that no name server knows is sent along the route of the default topic (TBW102); the broker creates it and
registers it, and a later refresh finds the real route. Concurrent callers of one topic share one request.

A route that was known stays known until a name server tells another one: one that restarts knows nothing until the
brokers have registered again, and they are there all the time. Only when each broker of the route says that it has no
such topic, and no name server knows it any more, is it taken for deleted.

What all name servers know counts together: a broker that reaches one of them is found by clients that ask another one
first. Otherwise members of a group would divide different queues among themselves, and nobody read some of them.
Neighbours: `cluster.metadata` asks, `cluster.topic_route` interprets. Source: RocketMQ
`MQClientInstance.updateTopicRouteInfoFromNameServer`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster.metadata import RouteCache
from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.topic_route import TopicQueues, topic_queues
from raptormq.errors import BodyError, ClientClosed, NoRoute, RaptorMQError, ServerError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import TopicRoute
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC, is_derived_topic

log = get_logger(__name__)

T = TypeVar("T")

ROUTE_ERRORS = TransportError, ServerError, BodyError
"""What asking for a route may end with: no name server answers, refuses, or answers what is no route."""
_MAX_CONCURRENT = 32
"""Topics to refresh: thousands of requests in one burst would hold up others at the name servers."""
_REFRESH_PAUSE_S = 1.0
_MISSING_PAUSE_S = 0.1
_MISSING_PAUSE_MAX_S = 30.0
"""Every topic in use is asked for this often anyway."""
_DENIAL_VALID_S = 10.0
"""Readers and senders ask each broker of a topic more often; what was said before, it may have the topic again."""


class RouteTable:
    """Routes by topic.

    Args:
        name_servers: whom to ask.
        changed: called with each route that is new or differs from the one before.
    """

    def __init__(self, name_servers: NameServers, changed: Callable[[TopicQueues], None]) -> None:
        self._cache = RouteCache(name_servers)
        self._changed = changed
        self._routes: dict[str, TopicQueues] = {}
        self._default_routes: dict[str, TopicQueues] = {}
        self._denied: dict[str, dict[str, float]] = {}
        """By topic, when (loop time) which broker said that it has none such."""
        self._fetches: dict[str, asyncio.Task[TopicQueues | None]] = {}
        self._awaited_routes: dict[str, asyncio.Task[None]] = {}
        self._default_fetch: asyncio.Task[TopicRoute | None] | None = None
        """Asks for the route of the default topic."""
        self._next_fetch_at: dict[str, float] = {}

    def cached(self, topic: str) -> TopicQueues | None:
        """Return the route without asking anyone; the hot path of producers."""
        return self._routes.get(topic) or self._default_routes.get(topic)

    @property
    def uses_default_route(self) -> bool:
        """Whether any topic in use has no route of its own yet."""
        return bool(self._default_routes)

    def note_sent(self, topic: str) -> None:
        """Note that a broker took a message: a topic that had no route of its own will have one soon."""
        if topic in self._default_routes and topic not in self._awaited_routes:
            expected = self._awaited_routes[topic] = background(self._await_route(topic), f"route of {topic} to come")
            expected.add_done_callback(lambda _: self._awaited_routes.pop(topic, None))

    def all_cached(self) -> list[TopicQueues]:
        """Return the real routes, without those borrowed from the default topic."""
        return list(self._routes.values())

    async def find(self, topic: str) -> TopicQueues:
        """Return the route of an existing topic.

        Raises:
            NoRoute: no name server knows the topic.
            TransportError: no name server answers.
        """
        route = self._routes.get(topic) or await self.refresh(topic)
        if route is None:
            raise NoRoute.to(topic)
        return route

    async def find_for_sending(self, topic: str, default_topic_queues: int) -> TopicQueues:
        """Return the route of a topic to send to, that of the default topic when it does not exist yet.

        Raises:
            NoRoute: the topic does not exist and brokers do not create topics by themselves, or none can be written.
            TransportError: no name server answers.
        """
        route = self._routes.get(topic) or await self.refresh(topic)
        if route is None:
            # A broker that has come back between the two questions has its topics, too: some have fewer queues.
            borrowed = await self._default_route_for(topic, 1 if is_derived_topic(topic) else default_topic_queues)
            if borrowed is None:
                raise NoRoute(f"{NoRoute.to(topic)}, and none creates topics by itself")
            route = await self.refresh(topic)
            if route is None:
                route = borrowed
                if borrowed.write_queues:
                    self._default_routes[topic] = borrowed
        if not route.write_queues:
            raise NoRoute(f"no broker takes messages for topic {topic}: no master is up or it is not writable")
        return route

    async def refresh(self, topic: str) -> TopicQueues | None:
        """Ask for the route now and return it, `None` when no name server knows the topic now.

        Raises:
            ROUTE_ERRORS: what was known stays known.
            ClientClosed: `close` came meanwhile.
        """
        return await self._unless_closed(self._fetches.get(topic) or self._begin_fetch(topic))

    def _begin_fetch(self, topic: str) -> asyncio.Task[TopicQueues | None]:
        fetch = self._fetches[topic] = asyncio.create_task(self._fetch(topic), name=f"route of {topic}")
        fetch.add_done_callback(lambda task: self._fetch_done(topic, task))
        return fetch

    async def refresh_within(self, topics: Iterable[str], seconds: float) -> None:
        """Ask for routes that are older than a second, the oldest first, and wait no longer than this; the answers to
        what has been asked by then count, too.
        """
        due_at = {topic: self._next_fetch_at.get(topic, 0.0) for topic in topics}
        now = asyncio.get_running_loop().time()
        due = sorted((topic for topic, at in due_at.items() if at <= now), key=due_at.__getitem__)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._refresh_many(due)

    async def _unless_closed(self, fetch: asyncio.Task[T]) -> T:
        try:
            return await asyncio.shield(fetch)  # one caller that is cancelled must not take the answer from the others
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not fetch.cancelled() or (caller is not None and caller.cancelling()):
                raise
            raise ClientClosed("the client is closed") from None  # `close` cancelled the fetch

    def refresh_soon(self, topic: str) -> None:
        """Ask for the route in the background, at most once a second per topic; ten times for one without a route."""
        if topic not in self._fetches and asyncio.get_running_loop().time() >= self._next_fetch_at.get(topic, 0.0):
            self._begin_fetch(topic)

    def note_missing(self, topic: str, broker_name: str) -> None:
        """A broker has no such topic: if all of them say so, and no name server knows it, it was deleted."""
        self._denied.setdefault(topic, {})[broker_name] = asyncio.get_running_loop().time()
        self.refresh_soon(topic)

    async def refresh_all(self) -> None:
        """Ask for every topic in use once more; failures are logged and leave what was known."""
        for topic, error in (await self._refresh_many([*self._routes, *self._default_routes])).items():
            log.warning("route of %s stays as it was: %s", topic, error)

    async def _refresh_many(self, topics: Collection[str]) -> dict[str, RaptorMQError]:
        """Ask for routes, a bounded number at once; returns the failures."""
        waiting = deque(topics)
        failures: dict[str, RaptorMQError] = {}
        unanswered = 0  # in a row

        async def ask() -> None:
            nonlocal unanswered
            # A name server that restarts fails all that are under way. When those behind them fail too, there is none.
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
            log.warning("no name server answers: the routes of %d more topics stay as they were", len(waiting))
        return failures

    async def close(self) -> None:
        """Stop asking."""
        await cancel_all(self._awaited_routes.values())
        for fetch in list(self._fetches.values()):
            fetch.cancel()
        if self._default_fetch is not None:
            self._default_fetch.cancel()

    async def _await_route(self, topic: str) -> None:
        # The broker answers a send before name servers know the topic, and this send may be the last one for long;
        # without a route of the topic's own the broker gets no heartbeats, so it cannot ask about transactions.
        pause = _MISSING_PAUSE_S
        while topic in self._default_routes and pause < _MISSING_PAUSE_MAX_S:
            try:
                if await self.refresh(topic) is not None:
                    return
            except RaptorMQError as error:
                log.debug("no route of %s yet: %s", topic, error)
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

    async def _default_route_for(self, topic: str, most_queues: int) -> TopicQueues | None:
        """Return the route of the default topic for one that is to come, None when there is none."""
        if self._default_fetch is None or self._default_fetch.done():  # a thousand sends may wait for one topic
            self._default_fetch = asyncio.create_task(
                self._cache.ask(AUTO_CREATE_TOPIC), name="route of the default topic"
            )
        found = await self._unless_closed(self._default_fetch)
        return topic_queues(topic, found, most_queues=most_queues) if found is not None else None

    def _fetch_done(self, topic: str, fetch: asyncio.Task[TopicQueues | None]) -> None:
        self._fetches.pop(topic, None)
        if not fetch.cancelled() and (error := fetch.exception()) is not None:
            log.debug("no route of %s: %s", topic, error)  # whoever waited gets it too; nobody may have waited
