"""Authorizes requests for records by log offset (33, 36, 37, 309, 323).

These requests contain a log offset, and any topic that the client chooses. The record therefore determines the required
permissions. If the user may not read it, the response is the same as for a missing record, so that the response does
not reveal the existence or the topic of the record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raptormq.errors import RecordError
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.properties import REAL_TOPIC, find_property
from raptormq.protocol.record import decode_record
from raptormq.protocol.topic_names import (
    HALF_TOPIC,
    HIDDEN_TOPICS,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from raptormq.security.gate import Authorizer
from raptormq.security.resources import ANY_TYPE, RequiredPermission, Resource
from raptormq.storage.fs import Buffer
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

Needs = Callable[[str], list[RequiredPermission]]
"""Returns the permissions that are required to read a record of a topic."""

_WAITING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC})
"""Topics of delayed, timer and half messages. REAL_TOPIC is used only in these topics, because clients can set it in
others.
"""


class AuthorizedRecords:
    """Reads records of ``store`` by log offset. An ``authorizer`` of None permits all reads."""

    def __init__(self, store: MessageStore, authorizer: Authorizer | None) -> None:
        self._store = store
        self._authorizer = authorizer

    async def message_at(
        self,
        connection: Connection,
        command: RemotingCommand,
        needs: Needs,
        offset: int,
        unique_key: str | None = None,
        *,
        allow_encrypted: bool = False,
        include_deleted: bool = False,
    ) -> Buffer | None:
        """Return the result of :meth:`MessageStore.message_at`, or None if the user of ``command`` does not have the
        permissions that ``needs`` returns, or if the record is in a topic that no request shows.
        """
        read = partial(self._store.message_at, offset, include_deleted=include_deleted)
        # Read a batch whole before the check: only authorized users may get the error for an encrypted batch.
        stored = await read(whole=True)
        if stored is None or _topic_of(stored) in HIDDEN_TOPICS:
            return None
        if self._authorizer is not None and not self._authorizer(connection, command, _permissions(stored, needs)):
            return None
        return await read(unique_key, allow_encrypted=allow_encrypted)


def _topic_of(stored: Buffer) -> str:
    """Return the topic of a record; empty if the bytes are not a record."""
    try:
        return decode_record(stored).topic
    except RecordError:
        return ""


def _permissions(stored: Buffer, needs: Needs) -> list[RequiredPermission]:
    try:
        # The offset may point into the body of a message with a forged record: a header with the sender's topic, and a
        # length that includes records of other users. The CRC of a forged record does not match.
        message = decode_record(stored)
    except RecordError:  # the topic is unknown
        return [RequiredPermission(Resource(ANY_TYPE), ("Get",))]
    waits_for = find_property(message.properties, REAL_TOPIC) if message.topic in _WAITING else None
    return needs(waits_for or message.topic)
