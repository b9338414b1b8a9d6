"""Records that are asked for by their place in the log (33, 36, 37, 309, 323), for those who may read them.

The gate judges what a request names; a place names no topic, and clients may write any topic beside it. So the record
itself tells what its reader needs. One that the reader may not have looks like one that is not there: whether there is
one, and of which topic, would be something to learn, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raptormq.errors import RecordError
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.properties import REAL_TOPIC, find_property
from raptormq.protocol.record import decode_record
from raptormq.protocol.topic_names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from raptormq.security.gate import Authorizer
from raptormq.security.resources import ANY_TYPE, RequiredPermission, Resource
from raptormq.storage.fs import Buffer
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

Needs = Callable[[str], list[RequiredPermission]]
"""What a reader needs for a record of a topic."""

_WAITING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC})
"""Topics in which messages for others wait. Only in these REAL_TOPIC counts: elsewhere clients may write it."""


class AuthorizedRecords:
    """Reads records of ``store`` by their places; ``judge`` None lets everybody read everything."""

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
        """As :meth:`MessageStore.message_at`; None also where the user of ``command`` lacks what he ``needs``."""
        look = partial(self._store.message_at, offset, include_deleted=include_deleted)
        if self._authorizer is not None:
            # Batches whole: to be told that one is encrypted, and cannot be taken apart, is for its readers, too.
            stored = await look(whole=True)
            if stored is None or not self._authorizer(connection, command, _permissions(stored, needs)):
                return None
        return await look(unique_key, allow_encrypted=allow_encrypted)


def _permissions(stored: Buffer, needs: Needs) -> list[RequiredPermission]:
    try:
        # The place may be one in the body of a message, where its sender has written what looks like a record of his
        # own topic and is so long that it takes in others': their bytes do not have the CRC that he wrote before.
        message = decode_record(stored)
    except RecordError:  # nobody can say whose it is
        return [RequiredPermission(Resource(ANY_TYPE), ("Get",))]
    waits_for = find_property(message.properties, REAL_TOPIC) if message.topic in _WAITING else None
    return needs(waits_for or message.topic)
