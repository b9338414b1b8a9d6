"""Assigns queues to this consumer and updates the assignment: group members, allocation and readers.

`Rebalancer` owns the readers. It rebalances every 20 s, and immediately when a broker reports a change of the members
(code 40) or when a route or the subscriptions change. It retries soon while a topic or its brokers cannot be found, or
while another member holds the lock of an assigned queue.

Two members must not read the same queue, even while a broker restarts. Each member divides the queues in its view among
the members in its view. While the views differ, the allocations differ, too. A restart changes the views in three
ways::

    its queues leave the routes and come back     for 2 min after a connection was lost, every round refreshes the
                                                  routes, and readers of its queues stay with their offsets, because
                                                  nobody can read these queues; the same for a name server that restarts
                                                  and knows only some of the brokers until all have registered
    it knows no members when it comes back        earlier members count for a while (`GroupMembers`)
    another member still reads a queue            that member holds the queue lock (`consumer.handover`)

`GroupMembers` determines the members of the group: all members that any broker of a topic reports. A restarted broker
reports none. While the connection to it is new, members from before the connection loss are included, too. Only brokers
that respond in this round are considered, because the last report of a frozen broker may contain a former member, whose
queues would have no reader.

A strategy of `raptormq.client.allocation` divides the queues among the members. There is no coordinator: every member
computes the same shares from the same two lists.

See also: `consumer.handover` revokes and acquires queues, `consumer.queue_reader` reads them. Source: RocketMQ
`RebalanceService`, `RebalanceImpl`, `findConsumerIdList`.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import GRACE_S, ClientInstance, TopicQueues, require_success
from raptormq.client.config import ConsumerConfig, MessageModel
from raptormq.client.consumer.handover import Handover
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.rebalance_calls import RebalanceCalls
from raptormq.errors import ClientClosed, ClientError, NoRoute, RaptorMQError, RequestTimeout, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.heartbeat import Subscription, decode_consumer_ids
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.timing import Backoff, wait_event

log = get_logger(__name__)


class GroupMembers:
    """Members of one group, as reported by the brokers."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._responses: dict[str, list[str]] = {}
        """Members reported by each broker, by its address."""
        self._failures: dict[str, RaptorMQError] = {}
        """Errors of unresponsive brokers, by address."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._absent: dict[str, set[str]] = {}
        """By topic, members from before a connection loss that no broker has reported since."""

    def connection_lost(self, before: Mapping[str, Collection[str]]) -> None:
        """Keep the current members of each topic, because a restarted broker does not report them."""
        self._absent = {topic: set(members) for topic, members in before.items()}

    def ask(self, topics: Collection[TopicQueues]) -> None:
        """Query the brokers of these topics again."""
        self.stop()
        self._responses, self._failures = {}, {}
        addresses = {address for found in topics for address in _addresses(found)}
        name = f"members of {self._group}"
        self._asking = {address: background(self._ask_one(address), name) for address in sorted(addresses)}

    def stop(self) -> None:
        """Cancel the requests."""
        for asking in self._asking.values():
            asking.cancel()

    async def of(self, found: TopicQueues) -> list[str]:
        """Return the members of the group according to the brokers of a topic, after `ask`.

        Waits one second for unresponsive brokers, or `ClientConfig.request_timeout` if none responds.

        Raises:
            RaptorMQError: no broker of the topic has responded.
        """
        asked = _addresses(found)
        pending = {self._asking[at] for at in asked if not self._asking[at].done()}
        if pending:
            _, pending = await asyncio.wait(
                pending, timeout=GRACE_S
            )  # the other brokers report the same members, apart from short delays
        while pending and not any(at in self._responses for at in asked):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        responded = [at for at in asked if at in self._responses]
        if not responded:
            raise next((self._failures[at] for at in asked), NoRoute(f"no broker of topic {found.topic} is up"))
        members = set[str]().union(*(self._responses[at] for at in responded))
        absent = self._absent.pop(found.topic, set()) - members
        if absent and any(map(self._instance.is_recently_connected, responded)):
            log.info("group %s: members %s have not reconnected yet", self._group, ", ".join(sorted(absent)))
            self._absent[found.topic] = absent
            members |= absent
        return sorted(members)

    async def _ask_one(self, address: str) -> None:
        timeout = self._instance.config.request_timeout
        try:
            async with asyncio.timeout(timeout):
                members = await self._members_at(address, timeout)
                if self._instance.client_id not in members:
                    # The broker was restarted, or has not registered this client yet. Send a heartbeat only to this
                    # broker, because a frozen broker would delay the others.
                    await self._instance.heartbeats.send(address)
                    members = await self._members_at(address, timeout)
        except TimeoutError:
            self._failures[address] = RequestTimeout(
                f"broker {address} did not return the members within {timeout:g} s"
            )
        except RaptorMQError as error:
            self._failures[address] = error
        else:
            self._responses[address] = members

    async def _members_at(self, address: str, timeout: float) -> list[str]:
        command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(self._group))
        response = await self._instance.pool.request(address, command, timeout)
        try:
            return decode_consumer_ids(require_success(response, address).body)
        except ServerError as error:
            log.info("broker %s does not know group %s yet: %s", address, self._group, error)
            return []


def _addresses(found: TopicQueues) -> list[str]:
    return [address for name in found.brokers if (address := found.replica(name)) is not None]


_STOPPED = "the consumer was stopped while it was starting"
_MISSING_PAUSE_S = 1.0
_PENDING_BACKOFF = Backoff(0.05, 0.5)
"""Retry interval for queues that other members have locked. Brokers do not report an unlock."""
_LOSS_S = 120.0
"""Time after a connection loss during which the broker may be unavailable, return, or be replaced."""
_LOSS_BACKOFF = Backoff(0.2, 5.0)
_AT_A_TIME = 64
"""Number of topics that are rebalanced before yielding to the event loop."""
MISSING_WARNING_S = 30.0
"""Interval in seconds of warnings about a topic that could never be read, and about a consumer that reads nothing."""
_REFRESH_S = 0.5
"""Time to wait for the routes after a connection loss. A later response triggers the next round."""


class _View(NamedTuple):
    """Members of the group, and the queues of a topic that were divided among them."""

    members: Sequence[str]
    queues: Sequence[MessageQueue]


class Rebalancer:
    """Assigns queues and owns the readers of one consumer.

    Args:
        instance: connections, routes and heartbeats.
        group: the consumer group.
        config: interval of rebalances and strategy; a broadcasting consumer reads every queue.
        subscriptions: returns the subscriptions by topic, in every round.
        new_reader: starts the reader of a queue, whose first pull waits for the end of the given task.
        handover: revokes and acquires queues.
        calls: notifies the application of assigned and lost queues.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        config: ConsumerConfig,
        subscriptions: Callable[[], Mapping[str, Subscription]],
        new_reader: Callable[[MessageQueue, Subscription, asyncio.Task[None] | None], QueueReader],
        handover: Handover,
        calls: RebalanceCalls,
    ) -> None:
        self._instance = instance
        self._group = group
        self._interval = config.rebalance_interval
        self._strategy = config.allocate_strategy
        self._subscriptions = subscriptions
        self._new_reader = new_reader
        self._handover = handover
        self._calls = calls
        self._shared = config.message_model is MessageModel.CLUSTERING
        self._members = GroupMembers(instance, group)
        self._views: dict[str, _View] = {}
        """Members and queues of the previous round, by topic."""
        self._readers: dict[str, dict[MessageQueue, QueueReader]] = defaultdict(dict)
        """Readers by topic, so that a round over many topics does not scan all readers for each topic."""
        self._announced: tuple[dict[str, Subscription], set[str]] = {}, set()
        self._causes: dict[str, RaptorMQError] = {}
        """Error of the last round, by topic."""
        self._is_stopped = False
        self._is_starting = False
        """True while `wait_for_topics` reports missing topics."""
        self._warned_at: dict[str, float] = {}
        """Loop time of the last warning, by topic that was never read."""
        self._unsubscribed_at = 0.0
        """Loop time since which there is no subscription, or of the last warning about it."""
        self._round_done = asyncio.Event()
        self._wanted = asyncio.Event()
        self._lost_at = -math.inf
        """Loop time of the last connection loss."""
        self._rounds_since_loss = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def readers(self) -> list[QueueReader]:
        """Readers of all assigned queues."""
        return [reader for readers in self._readers.values() for reader in readers.values()]

    def trigger(self) -> None:
        """Rebalance now."""
        self._wanted.set()

    def connection_lost(self) -> None:
        """Rebalance now, and more often for some time."""
        self._lost_at, self._rounds_since_loss = asyncio.get_running_loop().time(), 0
        self._members.connection_lost({topic: view.members for topic, view in self._views.items()})
        self.trigger()

    def locks_lost(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues that another member has locked. They may be assigned again."""
        lost: list[MessageQueue] = []
        for queue in queues:
            if (reader := self._readers[queue.topic].pop(queue, None)) is not None:
                log.warning("group %s: another member has taken over %s", self._group, queue)
                reader.revoke()
                reader.drop()
                lost.append(queue)
        self._calls.lost(lost)
        self.trigger()

    def locks_confirmed(self, queues: Collection[MessageQueue]) -> None:
        """Continue to consume queues whose locks were renewed."""
        for queue in queues:
            if (reader := self._readers[queue.topic].get(queue)) is not None:
                reader.confirm_lock(self._handover.locked_until(queue))

    def start(self) -> None:
        """Rebalance now and then periodically."""
        self._task = background(self._run(), f"rebalancing of {self._group}")

    async def wait_for_topics(self, topics: Collection[str], timeout: float) -> None:
        """Wait until the queues of these topics have been divided among the members once, and the start offsets of the
        queues of this member are known. Then a group that starts with the last offset skips no message that is sent
        from now on. The wait for a broker that does not return the offsets ends after `timeout` seconds, or at its
        first error.

        Raises:
            NoRoute: a topic does not exist, or no broker of it is up, for `timeout` seconds.
            RequestTimeout: no name server, or no broker of a topic, has responded.
            ServerError: a server refuses.
            ClientClosed: `stop` was called in the meantime.
        """
        self._is_starting = True
        try:
            async with asyncio.timeout(timeout):
                while not all(topic in self._views for topic in topics):
                    if self._is_stopped:
                        raise ClientClosed(_STOPPED)
                    self._round_done.clear()
                    await self._round_done.wait()
                for reader in [reader for topic in topics for reader in self._readers[topic].values()]:
                    await reader.is_positioned.wait()
                if self._is_stopped:
                    raise ClientClosed(_STOPPED)
        except TimeoutError:
            missing = next((topic for topic in topics if topic not in self._views), None)
            if missing is not None:
                raise self._start_error(missing, timeout) from self._causes.get(missing)
        finally:
            self._is_starting = False

    def _start_error(self, topic: str, timeout: float) -> RaptorMQError:
        """Return the error for a topic that could not be read within `timeout` seconds after the start."""
        cause = self._causes.get(topic)
        what = f"group {self._group} could not start reading topic {topic} within {timeout:g} s (start_timeout)"
        if isinstance(cause, ServerError):
            return ServerError(cause.code, f"{what}: {cause.remark}")
        if type(cause) is ClientError:
            return ClientError(f"{what}: {cause}")
        if isinstance(cause, NoRoute):
            return NoRoute(f"{what}: {cause}; allow_missing_topics=True starts before a topic exists")
        return RequestTimeout(f"{what}: {cause or 'no server has responded'}")

    def _warn_of_missing(self, topics: Iterable[str], now: float) -> float:
        """Log a warning for each topic that was never read, every `MISSING_WARNING_S`. Return the seconds until the
        next warning.
        """
        missing = [] if self._is_starting else [topic for topic in topics if topic not in self._views]
        self._warned_at = {topic: self._warned_at.get(topic, -math.inf) for topic in missing}
        for topic in missing:
            if now - self._warned_at[topic] >= MISSING_WARNING_S:
                self._warned_at[topic] = now
                log.warning("group %s waits for topic %s: %s", self._group, topic, self._causes.get(topic))
        return min((at + MISSING_WARNING_S - now for at in self._warned_at.values()), default=math.inf)

    def _warn_of_no_subscription(self, now: float) -> float:
        """Log a warning every `MISSING_WARNING_S` without a subscription. Return the seconds until the next warning."""
        if now - self._unsubscribed_at >= MISSING_WARNING_S:
            self._unsubscribed_at = now
            log.warning("group %s reads nothing: it has no subscription; call subscribe()", self._group)
        return self._unsubscribed_at + MISSING_WARNING_S - now

    async def stop(self) -> None:
        """Stop rebalancing and give up all queues."""
        self._is_stopped = True
        self._round_done.set()
        if self._task is not None:
            await cancel_all([self._task])
        self._members.stop()
        self._revoke(reader.queue for reader in self.readers)
        await self._handover.wait()
        await self._calls.wait()

    async def _run(self) -> None:
        pause, pending_rounds = 0.0, 0
        clock = asyncio.get_running_loop().time
        self._unsubscribed_at = clock()
        while True:
            await wait_event(self._wanted, pause)
            self._wanted.clear()
            began = clock()
            after_loss = began - self._lost_at < _LOSS_S
            complete = await self._rebalance(after_loss)
            self._round_done.set()
            pause = self._interval if complete else min(max(_MISSING_PAUSE_S, pause * 2), self._interval)
            topics = self._subscriptions().keys() - {retry_topic(self._group)}
            if not complete:
                if self._is_starting:
                    pause = _MISSING_PAUSE_S
                pause = min(pause, self._warn_of_missing(topics, clock()))
            if topics:
                self._unsubscribed_at = clock()
            else:
                pause = min(pause, self._warn_of_no_subscription(clock()))
            if after_loss:
                pause = min(pause, _LOSS_BACKOFF.pause(self._rounds_since_loss))
                self._rounds_since_loss += 1
            if self._handover.pending_topics:
                # a round over many queues takes time
                pause = min(pause, max(_PENDING_BACKOFF.pause(pending_rounds), clock() - began))
                pending_rounds += 1
            else:
                pending_rounds = 0

    async def _rebalance(self, after_loss: bool) -> bool:
        """Update all readers. Return False if a topic could not be updated."""
        subscriptions = dict(self._subscriptions())
        if after_loss:  # without name servers the cached routes are used
            await self._instance.routes.refresh_within(subscriptions, _REFRESH_S)
        routes = await self._routes(subscriptions)
        if self._announced != (subscriptions, set(routes)):
            # Brokers reject pulls with a subscription that was not announced by a heartbeat.
            await self._instance.heartbeats.send_all()
            self._announced = subscriptions, set(routes)
        if self._shared:
            self._members.ask(routes.values())
        results: list[asyncio.Task[bool]] = []
        async with asyncio.TaskGroup() as tasks:
            for number, (topic, found) in enumerate(routes.items(), 1):
                results.append(tasks.create_task(self._rebalance_topic(subscriptions[topic], found, after_loss)))
                if number % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
        complete = len(routes) == len(subscriptions) and all(result.result() for result in results)
        for topic in self._readers.keys() - subscriptions.keys():
            self._revoke(self._readers[topic])
            del self._readers[topic]
        for topic in self._handover.pending_topics - set(subscriptions):
            await self._handover.acquire(topic, [], set())
        return complete

    async def _routes(self, topics: Iterable[str]) -> dict[str, TopicQueues]:
        """Return the routes of the readable topics."""

        async def find(topic: str) -> TopicQueues | None:
            try:
                return await self._instance.routes.find(topic)
            except RaptorMQError as error:
                self._causes[topic] = error
                log.info("group %s cannot read topic %s; retrying: %s", self._group, topic, error)
                return None

        return {found.topic: found for found in await asyncio.gather(*map(find, topics)) if found is not None}

    async def _rebalance_topic(self, subscription: Subscription, found: TopicQueues, after_loss: bool) -> bool:
        """Update the readers of one topic. Return False after a failure."""
        try:
            await self._assign(subscription, found, after_loss)
            self._causes.pop(found.topic, None)
        except RaptorMQError as error:
            self._causes[found.topic] = error
            log.info("group %s keeps its queues of %s: %s", self._group, found.topic, error)
            return False
        return True

    async def _assign(self, subscription: Subscription, found: TopicQueues, after_loss: bool) -> None:
        members = await self._members.of(found) if self._shared else [self._instance.client_id]
        share = self._share_of(self._instance.client_id, found.topic, found.read_queues, members)
        wanted = set(share)  # possibly 10,000 queues

        def must_revoke(queue: MessageQueue, reader: QueueReader) -> bool:
            if reader.subscription != subscription:
                return True  # the broker may hold a pull with the previous tags
            return queue not in wanted and not (after_loss and queue.broker_name not in found.brokers)

        own = self._readers[found.topic]
        self._revoke(queue for queue, reader in own.items() if must_revoke(queue, reader))
        missing = [queue for queue in share if queue not in own]
        acquired = await self._handover.acquire(found.topic, missing, self._unowned(found, members))
        ready = self._calls.assigned(acquired)
        for queue in acquired:
            log.info("group %s: %s reads %s", self._group, self._instance.client_id, queue)
            own[queue] = self._new_reader(queue, subscription, ready)
            own[queue].locked_until = self._handover.locked_until(queue)
        self._views[found.topic] = _View(members, found.read_queues)

    def _unowned(self, found: TopicQueues, members: list[str]) -> set[MessageQueue]:
        """Return the queues that no other member can be reading: those of former members, or all if this is the only
        member.
        """
        if members == [self._instance.client_id]:
            return set(found.read_queues)
        if not self._strategy.is_shared:
            return set()
        before = self._views.get(found.topic, _View([], ()))
        gone = set(before.members) - set(members)
        return {
            queue for member in gone for queue in self._share_of(member, found.topic, before.queues, before.members)
        }

    def _share_of(
        self, member: str, topic: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of a member; all queues for a broadcasting consumer.

        Raises:
            ClientError: the strategy, or a function of the application that it calls, has failed.
        """
        if not self._shared:
            return list(queues)
        try:
            share = self._strategy.allocate(queues, members, member)
            if unknown := set(share) - set(queues):
                raise ClientError(f"it has returned {min(unknown)}, which is not a queue of the topic")
        except Exception as error:
            raise ClientError(
                f"{type(self._strategy).__name__} could not divide the queues of topic {topic}: {error!r}"
            ) from error
        return share

    def _revoke(self, queues: Iterable[MessageQueue]) -> None:
        readers = [self._readers[queue.topic].pop(queue) for queue in list(queues)]
        for reader in readers:
            log.info("group %s: %s releases %s", self._group, self._instance.client_id, reader.queue)
        self._handover.revoke(readers)
