"""Commits of offsets that a slave has accepted and its master may not have: ``config/slaveCommits.json``.

Consumers commit to a slave while the master is down. The slave hands these commits over to the master before it copies
the master's offsets, which would replace them::

    {"commits": {"orders@billing": {"0": {"offset": 150, "copied": 100, "topicId": "5f3a"}}}}

``copied`` is the offset of the master before the commit, absent if the master had none. The master may have a later one
by now, which the slave had not copied yet. It keeps a lower one, because the group was reset there, and a higher one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from raptormq.broker.in_thread import run_to_completion
from raptormq.files import DiskFiles, Files
from raptormq.json_file import JsonFile
from raptormq.logs import get_logger
from raptormq.protocol.bodies.members import object_at, parse_integer
from raptormq.storage.queue import ConsumerOffsets

logger = get_logger(__name__)

Rows = Mapping[str, Mapping[int, int]]
"""Offsets by queue id, by ``topic@group``."""
TopicId = Callable[[str], str | None]


class AcceptedCommit(NamedTuple):
    """A commit that is to be handed over."""

    topic: str
    group: str
    queue_id: int
    offset: int
    topic_id: str | None
    """Id of the topic at the time of the commit, so that the commit does not apply to a new topic of the same name."""


class _Commit(NamedTuple):
    offset: int
    copied: int | None
    topic_id: str | None


class AcceptedCommits:
    """The commits of one slave."""

    def __init__(self, folder: Path, offsets: ConsumerOffsets, topic_id: TopicId, files: Files | None = None) -> None:
        """Read the file in ``folder``. ``topic_id`` returns the current id of a topic.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        self._offsets = offsets
        self._topic_id = topic_id
        self._file = JsonFile(
            str(folder / "slaveCommits.json"),
            files or DiskFiles(),
            key="commits",
            without="without it, consumers may receive messages again that they consumed while the master was down",
        )
        self._saved = self._file.load(_decode) or {}
        self._commits = dict(self._saved)
        self._copied = {key: dict(row) for key, row in offsets.rows()}
        for (key, queue_id), commit in self._commits.items():
            row = self._copied.setdefault(key, {})
            if commit.copied is None:
                row.pop(queue_id, None)
            else:
                row[queue_id] = commit.copied

    def collect(self) -> None:
        """Note the commits since the last call."""
        for key, row in self._offsets.take_changed_rows().items():
            topic_id = self._topic_id(key.partition("@")[0])
            for queue_id, offset in (row or {}).items():
                copied = self._copied.get(key, {}).get(queue_id)
                known = self._commits.get((key, queue_id))
                if offset != (copied if known is None else known.offset):
                    self._commits[key, queue_id] = _Commit(offset, copied, topic_id)

    async def save(self) -> None:
        """Save the commits if they have changed. Errors are only logged: the commits are kept in memory. A cancelled
        call returns after its write, so that it does not replace what the next call writes.
        """
        self.collect()
        commits = dict(self._commits)
        if commits != self._saved:
            await run_to_completion(partial(self._write, commits))

    def _write(self, commits: _Commits) -> None:
        try:
            self._file.save({"commits": _encode(commits)})
            self._saved = commits
        except OSError as error:
            logger.warning("cannot save %s: %s", self._file.path, error)

    def to_hand_over(self, found: Rows) -> list[AcceptedCommit]:
        """Return the commits that the master lacks, whose offsets are ``found``. Log those that it must not get."""
        self.collect()
        missing: list[AcceptedCommit] = []
        for (key, queue_id), commit in list(self._commits.items()):
            topic, _, group = key.partition("@")
            accepted = AcceptedCommit(topic, group, queue_id, commit.offset, commit.topic_id)
            now = found.get(key, {}).get(queue_id)
            if now is not None and now >= commit.offset:
                self.handed_over(accepted)
            elif commit.copied is not None and (now is None or now < commit.copied):
                self.refused(accepted, f"the group was reset at the master, from {commit.copied} to {now}")
            elif self._offsets.get(topic, group, queue_id) != commit.offset:
                self.refused(accepted, "the topic or the group was deleted")
            else:
                missing.append(accepted)
        return missing

    def handed_over(self, commit: AcceptedCommit) -> None:
        """Forget a commit that the master has, unless there was another one meanwhile."""
        place = f"{commit.topic}@{commit.group}", commit.queue_id
        if (found := self._commits.get(place)) is not None and found.offset == commit.offset:
            del self._commits[place]

    def refused(self, commit: AcceptedCommit, reason: str) -> None:
        """Forget and log a commit that the master does not get."""
        self.handed_over(commit)
        logger.warning(
            "group %s has committed offset %d of queue %d of topic %s to this slave, but not to the master: %s",
            commit.group, commit.offset, commit.queue_id, commit.topic, reason,
        )  # fmt: skip

    def copied(self, rows: Rows) -> None:
        """Note that the offsets of this broker are those of the master now."""
        self._copied = {key: dict(row) for key, row in rows.items()}
        self.discard()

    def discard(self) -> None:
        """Forget all commits: they are copied, or this broker is the master from now on."""
        self._offsets.take_changed_rows()
        self._commits.clear()


_Commits = dict[tuple[str, int], _Commit]


def _encode(commits: _Commits) -> dict[str, dict[str, dict[str, Any]]]:
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for (key, queue_id), commit in commits.items():
        value = {"offset": commit.offset, "copied": commit.copied, "topicId": commit.topic_id}
        table.setdefault(key, {})[str(queue_id)] = {name: each for name, each in value.items() if each is not None}
    return table


def _decode(value: dict[str, Any]) -> _Commits:
    table = object_at(value, "commits")
    return {
        (key, int(queue_id)): _Commit(
            parse_integer(commit["offset"]),
            None if commit.get("copied") is None else parse_integer(commit["copied"]),
            commit.get("topicId"),
        )
        for key in table
        for queue_id, commit in object_at(table, key).items()
    }
