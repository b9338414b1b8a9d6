"""Output of ``raptormq group describe``: members, subscriptions, and the progress in each queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from raptormq.cli.output import moment, print_table
from raptormq.client import GroupConnections, GroupMember, MessageQueue, QueueProgress


@dataclass(frozen=True, slots=True)
class Description:
    """A consumer group. ``connections`` is None if no member is connected."""

    name: str
    connections: GroupConnections | None
    progress: Mapping[MessageQueue, QueueProgress]

    @property
    def is_broadcasting(self) -> bool:
        """True if each member consumes every message and stores its own progress."""
        return self.connections is not None and self.connections.is_broadcasting

    @property
    def lag(self) -> int | None:
        """Number of messages that are not consumed yet, or None for a broadcasting group."""
        return None if self.is_broadcasting else sum(each.lag for each in self.progress.values())

    @property
    def lost(self) -> int | None:
        """Number of messages that were deleted before the group consumed them, or None for a broadcasting group."""
        return None if self.is_broadcasting else sum(each.lost for each in self.progress.values())

    @property
    def topics(self) -> set[str]:
        """Topics that the group subscribes to or has consumed."""
        return {queue.topic for queue in self.progress}

    @property
    def members(self) -> list[GroupMember]:
        """Connected members, sorted by client id."""
        return sorted(self.connections.members, key=lambda member: member.client_id) if self.connections else []

    def as_json(self) -> dict[str, Any]:
        """Return the group as a JSON value. Times are in ms since 1970, 0 for never."""
        return {
            "group": self.name,
            "lag": self.lag,
            "lost": self.lost,
            "message_model": self.connections.message_model if self.connections else None,
            "members": [
                {
                    "client_id": member.client_id,
                    "address": member.address,
                    "language": member.language,
                    "version": member.version,
                }
                for member in self.members
            ],
            "subscriptions": dict(self._subscriptions()),
            "queues": [
                {
                    "topic": queue.topic,
                    "broker": queue.broker_name,
                    "queue_id": queue.queue_id,
                    "consumer_offset": each.consumer_offset,
                    "pull_offset": each.pull_offset,
                    "broker_offset": each.broker_offset,
                    "min_offset": each.min_offset,
                    "lag": each.lag,
                    "lost": each.lost,
                    "last_consumed_store_timestamp": each.last_timestamp,
                }
                for queue, each in sorted(self.progress.items())
            ],
        }

    def print(self) -> None:
        """Print up to three tables: members, subscriptions and queues. Empty tables are omitted."""
        click.echo(f"group {self.name}: {self._summary()}")
        if self.members:
            rows = [[member.client_id, member.address, member.language] for member in self.members]
            print_table(["member", "address", "language"], rows)
        if subscriptions := self._subscriptions():
            print_table(["topic", "subscribed to"], subscriptions)
        if self.progress:
            print_table(
                ["topic", "broker", "queue", "consumed to", "end", "lag", "lost", "last consumed was stored"],
                [
                    [
                        queue.topic,
                        queue.broker_name,
                        queue.queue_id,
                        each.consumer_offset,
                        each.broker_offset,
                        each.lag,
                        each.lost,
                        moment(each.last_timestamp),
                    ]
                    for queue, each in sorted(self.progress.items())
                ],
            )

    def _summary(self) -> str:
        if self.connections is None:
            who = "no member is connected"
        else:
            who = f"{len(self.members)} {'member' if len(self.members) == 1 else 'members'}"
            if self.is_broadcasting:
                return f"{who}, broadcasting: each member stores its own progress, so brokers report no lag"
        lost = f", {self.lost} messages were deleted before the group consumed them" if self.lost else ""
        return f"{who}, lag {self.lag}{lost}"

    def _subscriptions(self) -> list[tuple[str, str]]:
        subscriptions = self.connections.subscriptions if self.connections else {}
        return [(topic, each.expression) for topic, each in sorted(subscriptions.items())]
