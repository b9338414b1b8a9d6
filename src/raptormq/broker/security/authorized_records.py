"""Records requested by log offset (33, 36, 37, 309, 323), for users who may read them.

Access control checks the names in a request. A log offset names no topic, and clients could put any topic beside it. So
the record itself decides which permissions its reader needs. A record that the user may not read is answered like one
that does not exist, so that neither its existence nor its topic is revealed.
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
"""The permissions to read a record of a topic."""

_WAITING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC})
"""Topics of messages that wait for another topic. Only here REAL_TOPIC is trusted: in other topics clients may write
it."""


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
            # Read batches whole: the error that a batch is encrypted and cannot be unpacked is for authorised readers
            # only.
            stored = await look(whole=True)
            if stored is None or not self._authorizer(connection, command, _permissions(stored, needs)):
                return None
        return await look(unique_key, allow_encrypted=allow_encrypted)


def _permissions(stored: Buffer, needs: Needs) -> list[RequiredPermission]:
    try:
        # The offset may point into the body of a message, where its sender has put bytes that look like a record of his
        # own topic and span the records of others. Their CRC does not match.
        message = decode_record(stored)
    except RecordError:  # its topic is unknown
        return [RequiredPermission(Resource(ANY_TYPE), ("Get",))]
    waits_for = find_property(message.properties, REAL_TOPIC) if message.topic in _WAITING else None
    return needs(waits_for or message.topic)
