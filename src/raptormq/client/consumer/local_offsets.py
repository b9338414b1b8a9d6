"""Offset file of a broadcasting consumer on its own machine.

The file `<folder>/<client id>/<group>/offsets.json` has the format of the Java client, and in addition the ids of the
topics that the offsets belong to (`raptormq.protocol.topic_ids`). The Java client ignores these ids, and drops them
when it writes the file::

    {"offsetTable":{{queue}:offset},"topicIds":{"<topic>":{"<broker name>":"<id>"}}}

Without a `ClientConfig.instance_name` the client id is the Java client's for broadcasting, `<ip>@DEFAULT`, so that the
next process continues where this one was. Consumers that run at the same time use `<ip>@DEFAULT-2` and so on; each
holds a lock on the file `lock` beside its offsets.
The file is written and read like the tables of a broker (`raptormq.json_file`): durably, with the previous version in
`offsets.json.bak`. See also: `consumer.offset_commits` writes, `consumer.queue_reader` reads. Source: RocketMQ
`LocalFileOffsetStore`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from raptormq.errors import ClientError, StoreDamaged
from raptormq.files import DiskFiles, make_durable_folder
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.queue_offsets import TopicIds, encode_offset_file, offset_file_in
from raptormq.protocol.message import MessageQueue

DEFAULT_NAME = "DEFAULT"
"""Second half of the client id without a configured instance name."""
_FILES = DiskFiles()


def _free_id(folder: Path, client_id: str, group: str) -> tuple[str, int]:
    """Return the first client id that no other consumer on this machine uses, and the descriptor of its lock."""
    for number in count(1):
        name = client_id if number == 1 else f"{client_id}-{number}"
        try:
            make_durable_folder(_FILES, str((folder / name / group).absolute()))
            lock = os.open(folder / name / group / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ClientError(
                f"offsets cannot be stored in {folder}: {error.strerror}; set ConsumerConfig.offset_folder"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        except OSError as error:
            os.close(lock)
            raise ClientError(
                f"files in {folder} cannot be locked: {error.strerror}; set ConsumerConfig.offset_folder to a folder on"
                " this machine, or ClientConfig.instance_name to a name that only this consumer has"
            ) from error
        else:
            return name, lock
    raise AssertionError


_locks: dict[LocalOffsets, int] = {}
"""Descriptors of the locks of this process."""


def _close_inherited_locks() -> None:
    """Close inherited locks in a forked child, which would otherwise keep them until it ends."""
    for lock in _locks.values():
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_close_inherited_locks)


class LocalOffsets:
    """The offsets of one consumer.

    Raises:
        ClientError: The file and its backup cannot be read (the message says what to do), or its folder cannot be
            created or does not support locks.
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        if client_id.partition("@")[2] == DEFAULT_NAME:
            client_id, _locks[self] = _free_id(folder, client_id, group)
        self.path = (folder / client_id / group / "offsets.json").absolute()
        without = "without them it begins where ConsumerConfig.consume_from says"
        self._file = JsonFile(str(self.path), _FILES, key="offsetTable", without=without)
        self._deleted_topics: set[str] = set()
        """Ids of deleted topics, for which readers may still store offsets."""
        self._next_write: asyncio.Task[OSError | None] | None = None
        """The next write, which has not started."""
        self._last_write: asyncio.Task[OSError | None] | None = None
        """The last write that was scheduled."""
        try:
            self._offsets, self._topic_ids = self._file.load(offset_file_in) or ({}, {})
        except StoreDamaged as error:
            self._unlock()
            raise ClientError(f"the offsets of this consumer cannot be read: {error}") from error

    async def close(self) -> None:
        """Release the file for another consumer, after the last write."""
        if self._last_write is not None:
            await asyncio.wait([self._last_write])
        self._unlock()

    def get(self, queue: MessageQueue) -> int | None:
        """Return the stored offset; None for a new queue."""
        return self._offsets.get(queue)

    def topic_id(self, queue: MessageQueue) -> str | None:
        """Return the topic id of the stored offset of a queue; None if unknown."""
        return self._topic_ids.get((queue.topic, queue.broker_name))

    def forget(self, queue: MessageQueue, topic_id: str) -> bool:
        """Remove the offsets of a deleted topic on a broker. Return False if there are none. They are removed from the
        file with the next write; until then the file contains their topic id.
        """
        place = queue.topic, queue.broker_name
        self._deleted_topics.add(topic_id)
        if self._topic_ids.get(place) not in (None, topic_id):
            return False
        self._topic_ids.pop(place, None)
        known = [each for each in self._offsets if (each.topic, each.broker_name) == place]
        for each in known:
            del self._offsets[each]
        return bool(known)

    async def store(self, queue: MessageQueue, offset: int, topic_id: str | None = None) -> None:
        """Store an offset of the topic with this id, which may be unknown. On return, the offset is in the file.
        Offsets that arrive during a write are combined into the next write. A write continues if this call is
        cancelled, because its thread cannot be stopped.

        Raises:
            ClientError: the file could not be written.
        """
        if topic_id in self._deleted_topics:
            return
        before = self.topic_id(queue)
        if topic_id is not None and topic_id != before:
            if before is not None:
                self.forget(queue, before)
            self._topic_ids[queue.topic, queue.broker_name] = topic_id
        self._offsets[queue] = offset
        if self._next_write is None:
            self._next_write = self._last_write = asyncio.create_task(
                self._write_after(self._last_write), name=f"write {self.path}"
            )
        error = await asyncio.shield(self._next_write)
        if error is not None:
            raise ClientError(f"the offsets cannot be written to {self.path}: {error.strerror}") from error

    async def _write_after(self, previous: asyncio.Task[OSError | None] | None) -> OSError | None:
        """Write after the previous write has ended. An error is returned instead of raised, because the caller may have
        been cancelled."""
        if previous is not None:
            await asyncio.wait([previous])
        self._next_write = None
        try:
            await asyncio.to_thread(self._write, dict(self._offsets), dict(self._topic_ids))
        except OSError as error:
            return error
        return None

    def _write(self, offsets: dict[MessageQueue, int], topic_ids: TopicIds) -> None:
        make_durable_folder(_FILES, str(self.path.parent))
        self._file.save_bytes(encode_offset_file(offsets, topic_ids))

    def _unlock(self) -> None:
        lock = _locks.pop(self, None)
        if lock is not None:
            with suppress(OSError):  # close alone would not unlock if a forked child has a copy
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)
