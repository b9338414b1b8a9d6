"""Reads parts of the log from the other brokers of this name, to repair damage that the scrub has found.

The HA protocol cannot request a range that the slave already has. Therefore READ_LOG_RANGE (31015) is sent to the port
for clients of the master and the slaves that a name server lists. Apache RocketMQ does not support this request; damage
is then only reported.

The logs of a master and a slave may have diverged. Before a copy is used, the broker therefore checks (COMPARE_LOG)
that the copy has the record after the damage. A record contains its log offset, its queue offset, and the times of its
message and its storage, so a log with an equal record has equal records before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from raptormq.broker.ha.master_client import MasterClient
from raptormq.errors import NoValidCopy, RaptorMQError, ServerError, StorageError
from raptormq.storage.store import MessageStore


class LogCopies:
    """The other copies of the log of one master or slave."""

    def __init__(
        self,
        store: MessageStore,
        members: Callable[[], Awaitable[Mapping[int, str] | None]],
        client: MasterClient,
        own_address: str,
    ) -> None:
        """Create the reader.

        Args:
            store: the store of this broker.
            members: returns broker id -> address of the brokers of this name; None if no name server responds.
            client: sends requests to them; closed with this reader.
            own_address: address of this broker for clients.
        """
        self._store = store
        self._members = members
        self._client = client
        self._own_address = own_address

    async def fetch(self, begin: int, limit: int) -> bytes:
        """Return records of the log from another copy that begin at ``begin`` and end at or before ``limit``.

        Raises:
            NoValidCopy: no other broker of this name has such records.
            StorageError: none has sent them, and one may have them. The message contains the reason for each broker.
        """
        known = await self._record_behind(limit)
        failures = []
        members = await self._members()
        all_answered = members is not None
        for address in [each for _, each in sorted((members or {}).items()) if each != self._own_address]:
            self._client.found(address, "")
            try:
                if await self._client.has_record(*known):
                    return await self._client.read_range(begin, limit)
                failures.append(f"{address}: its log is another one, or ends before {known[0]}")
            except RaptorMQError as error:
                failures.append(f"{address}: {error}")
                all_answered = all_answered and isinstance(error, ServerError)
        reasons = "; ".join(failures) or "a name server has no other broker of this name"
        kind = NoValidCopy if all_answered else StorageError
        raise kind(f"no other copy has sent this part of the log: {reasons}")

    async def _record_behind(self, limit: int) -> tuple[int, bytes]:
        """Return offset and bytes of the first record at or after ``limit``."""
        size = self._store.config.segment_size
        for offset in (limit, limit - limit % size + size):  # the rest of a segment has no record
            found = await self._store.message_at(offset, whole=True, include_deleted=True)
            if found is not None:
                return offset, bytes(found)
        raise NoValidCopy(f"the record after the damage, at offset {limit}, is damaged, too, or does not exist yet")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
