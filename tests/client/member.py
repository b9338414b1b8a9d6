"""A member of a group, as the client instance uses it."""

from __future__ import annotations

import asyncio

from raptormq.protocol.bodies.heartbeat import ConsumerData, Subscription


class Member:
    """A consumer that counts its notifications."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.made = self.lost = 0

    def describe(self) -> ConsumerData:
        return ConsumerData("g", subscriptions=[Subscription.parse("t", "A || B", 7)])

    def members_changed(self) -> None:
        self.told.set()

    def connection_made(self) -> None:
        self.made += 1

    def connection_lost(self) -> None:
        self.lost += 1
