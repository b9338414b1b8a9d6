"""Strategies that divide the queues of a topic among the members of a group. No I/O.

There is no coordinator: every member computes the shares of all members from the same two lists. Members in different
languages must therefore use the same strategy, the same order and the same arithmetic; with two strategies in one
group, some queues have two readers and others have none. The results equal those of the Java client::

    Averagely (default)   contiguous shares, larger ones first          AllocateMessageQueueAveragely
    AveragelyByCircle     every n-th queue                              AllocateMessageQueueAveragelyByCircle
    ByMachineRoom         averagely, of the brokers in some rooms       AllocateMessageQueueByMachineRoom
    MachineRoomNearby     of the own room; a room without members: all  AllocateMachineRoomNearby
    ConsistentHash        by a ring of hashes, so that few queues move  AllocateMessageQueueConsistentHash
    ByConfig              as configured for this member                 AllocateMessageQueueByConfig

See also: `config` has the strategy as a setting, `consumer.rebalance` uses it. Source: RocketMQ
`AllocateMessageQueueStrategy` and its classes, `ConsistentHashRouter`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from raptormq.client.settings import Limits, check_setting
from raptormq.errors import ConfigError
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import RETRY_PREFIX

DEFAULT_VIRTUAL_NODES = 10
MAX_VIRTUAL_NODES = 1_000
_VIRTUAL_NODES = Annotated[int, Limits(MAX_VIRTUAL_NODES)]


class AllocateStrategy(ABC):
    """Divides queues among members. An application may define subclasses, which implement `share_of`. The method must
    depend only on its arguments, assign each queue to one member, and not block.
    """

    is_shared = True
    """Whether all members use equal strategies, so that this object can compute the shares of other members, too."""

    def allocate(self, queues: Iterable[MessageQueue], client_ids: Iterable[str], client_id: str) -> list[MessageQueue]:
        """Return the queues that `client_id` reads.

        A client that is not in the list, because the broker has not registered it yet, reads nothing.
        """
        members = sorted(set(client_ids), key=utf16)
        ordered = sorted(set(queues), key=_java_order)
        if client_id not in members or not ordered:
            return []
        return self.share_of(client_id, ordered, members)

    @abstractmethod
    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the share of one of `client_ids`. Both lists are sorted, without duplicates, and not empty."""


def utf16(text: str) -> bytes:
    """Return a sort key with Java's order: Java compares UTF-16 units, Python code points; they differ for characters
    beyond U+FFFF.
    """
    return text.encode("utf-16-be", "surrogatepass")


def _java_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return utf16(queue.topic), utf16(queue.broker_name), queue.queue_id


@dataclass(frozen=True)
class Averagely(AllocateStrategy):
    """Contiguous shares that differ by at most one queue; the first members get the larger ones."""

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the share of one of `client_ids`."""
        index = client_ids.index(client_id)
        share, larger_shares = divmod(len(queues), len(client_ids))
        if index < larger_shares:
            start = index * (share + 1)
            return list(queues[start : start + share + 1])
        start = index * share + larger_shares
        return list(queues[start : start + share])


@dataclass(frozen=True)
class AveragelyByCircle(AllocateStrategy):
    """Queues are assigned to the members in turn, so that each member has queues of all brokers."""

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the share of one of `client_ids`."""
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True)
class ByMachineRoom(AllocateStrategy):
    """Divides only the queues of brokers in `rooms`; the names of these brokers begin with `room@`. All members must
    have the same rooms. No member of the group reads the queues of other brokers.

    Raises:
        ConfigError: there is no room, or a room is not text.
    """

    rooms: Collection[str]
    """Names of the rooms (consumeridcs)."""

    def __post_init__(self) -> None:
        given: object = self.rooms
        if isinstance(given, str) or not isinstance(given, Collection) or not given:
            raise ConfigError(f"rooms must be a non-empty collection of names, not {given!r}")
        for room in self.rooms:
            check_setting("a room", room, str)
        object.__setattr__(self, "rooms", frozenset(self.rooms))

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the share of one of `client_ids`."""
        here = [queue for queue in queues if self._is_here(queue.broker_name)]
        index = client_ids.index(client_id)
        share, rest = divmod(len(here), len(client_ids))
        # Unlike `Averagely`, Java gives out the rest from the end.
        extra = here[share * len(client_ids) + index :][:1] if index < rest else []
        return here[share * index : share * (index + 1)] + extra

    def _is_here(self, broker_name: str) -> bool:
        parts = broker_name.rstrip("@").split("@")  # Java's split drops empty parts at the end
        return len(parts) == 2 and parts[0] in self.rooms


def room_before_at(name: str) -> str:
    """Return the part of a name before the first `@`, or the whole name if it has none."""
    return name.partition("@")[0]


@dataclass(frozen=True)
class MachineRoomNearby(AllocateStrategy):
    """Members read the queues of the brokers in their machine room. All members share the queues of rooms without a
    member.

    Raises:
        ConfigError: a value is not a function or a strategy.
    """

    consumer_room: Callable[[str], str]
    """Returns the room of a member by its client id, `<client_ip>@<instance_name>`: the same for all members."""
    broker_room: Callable[[MessageQueue], str] = field(default=lambda queue: room_before_at(queue.broker_name))
    """Returns the room of a queue; default: the part of the broker name before `@`."""
    within: AllocateStrategy = field(default_factory=Averagely)
    """Divides the queues of a room."""

    def __post_init__(self) -> None:
        for name in ("consumer_room", "broker_room"):
            if not callable(getattr(self, name)):
                raise ConfigError(f"{name} must be a function, not {getattr(self, name)!r}")
        check_setting("within", self.within, AllocateStrategy)

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the share of one of `client_ids`.

        Raises:
            ConfigError: a function has returned an invalid room name.
        """
        members: defaultdict[str, list[str]] = defaultdict(list)
        for member in client_ids:
            members[_room(self.consumer_room(member), f"member {member}")].append(member)
        by_room: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_room[_room(self.broker_room(queue), f"queue {queue}")].append(queue)
        own = _room(self.consumer_room(client_id), f"member {client_id}")
        share = self.within.allocate(by_room.pop(own, []), members[own], client_id)
        for room in sorted(by_room.keys() - members.keys(), key=utf16):
            share += self.within.allocate(by_room[room], client_ids, client_id)
        return share


def _room(room: object, what: str) -> str:
    if not isinstance(room, str) or not room:
        raise ConfigError(f"the machine room of {what} must be non-empty text, not {room!r}")
    return room


@dataclass(frozen=True)
class ConsistentHash(AllocateStrategy):
    """Assigns each queue to the member whose point on a ring of hashes follows the point of the queue. When a member
    joins or leaves, only its own queues move. The shares differ more in size than those of `Averagely`.

    Each member has several points: the first 32 bits of the MD5 of `<client id>-<number>`. A queue has one point: the
    hash of the string form of Java's `MessageQueue`.

    Raises:
        ConfigError: the number is out of range.
    """

    virtual_nodes: int = DEFAULT_VIRTUAL_NODES
    """Points of each member, from 1 to 1,000; the same for all members. More points make shares more even."""

    def __post_init__(self) -> None:
        check_setting("virtual_nodes", self.virtual_nodes, _VIRTUAL_NODES)

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the share of one of `client_ids`."""
        ring, owners = _ring(tuple(client_ids), self.virtual_nodes)

        def owner(queue: MessageQueue) -> str:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return owners[ring[bisect_left(ring, _point(text)) % len(ring)]]

        return [queue for queue in queues if owner(queue) == client_id]


@lru_cache(maxsize=4)
def _ring(client_ids: tuple[str, ...], virtual_nodes: int) -> tuple[list[int], dict[int, str]]:
    """Return the points of the ring in order, and their members."""
    owners = {_point(f"{member}-{number}"): member for member in client_ids for number in range(virtual_nodes)}
    return sorted(owners), owners


def _point(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True)
class ByConfig(AllocateStrategy):
    """Assigns exactly `queues` to this member, regardless of the other members. A queue of two members is read twice,
    and a queue of no member is not read.

    The queues of the group's retry topic, with its failed messages, are divided by `Averagely`; otherwise no member
    would read them. Java clients read the configured queues of the retry topic, too.

    Raises:
        ConfigError: a value is not a queue.
    """

    is_shared = False

    queues: Collection[MessageQueue]
    """Queues of all subscribed topics."""

    def __post_init__(self) -> None:
        for queue in self.queues:
            check_setting("a queue of ByConfig", queue, MessageQueue)
        object.__setattr__(self, "queues", frozenset(self.queues))

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the configured queues that exist."""
        if queues[0].topic.startswith(RETRY_PREFIX):
            return Averagely().share_of(client_id, queues, client_ids)
        return [queue for queue in queues if queue in self.queues]
