"""``raptormq dlq``: lists, shows and resends dead letters, the messages whose retries are exhausted.

The dead letters of a group are in the topic ``%DLQ%GROUP`` until retention deletes them. Resending copies them to the
retry topic of the group, so only that group receives them. The command commits its progress for a consumer group of its
own (:func:`resend_group`), so that the next call continues with later letters.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, astuple, dataclass

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.completing import group_names
from raptormq.cli.confirming import confirm
from raptormq.cli.connecting import client_config
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.hints import explaining
from raptormq.cli.message_format import fields, preview
from raptormq.cli.options import group_name, name_servers_option, output_option, timeout_option
from raptormq.cli.output import Cell, echo, moment, print_json, print_table
from raptormq.cli.progress import Advance, progress
from raptormq.client import AdminClient, ClientConfig, MessageExt, MessageQueue, Producer, PullConsumer
from raptormq.errors import NoRoute, RaptorMQError
from raptormq.protocol import properties as names
from raptormq.protocol.topic_names import DLQ_PREFIX, dlq_topic

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Line:
    """Row of the list. ``newest`` is the store time of the newest letter in ms since 1970."""

    group: str
    letters: int
    newest: int


@click.group(
    epilog="""\b
Examples:
  raptormq dlq list
  raptormq dlq show shipping
  raptormq dlq resend shipping --yes"""
)
def dlq() -> None:
    """List, show and resend dead letters."""


@dlq.command(
    name="list",
    epilog="""\b
Examples:
  raptormq dlq list
  raptormq dlq list -o json | jq '.[].group'""",
)
@output_option
@name_servers_option
@timeout_option
def list_groups(output: str, name_servers: str, timeout_s: float) -> None:
    """List the consumer groups that have dead letters."""
    lines = with_admin(name_servers, timeout_s, _lines)
    if output == "json":
        print_json([asdict(line) for line in lines])
    else:
        print_table(["group", "letters", "newest"], ([line.group, line.letters, moment(line.newest)] for line in lines))


async def _lines(admin: AdminClient) -> list[_Line]:
    lines = []
    for topic in await admin.topics():
        if topic.startswith(DLQ_PREFIX):
            offsets = (await admin.topic_stats(topic)).values()
            count = sum(each.max_offset - each.min_offset for each in offsets)
            if count:
                newest = max(each.last_update_timestamp for each in offsets)
                lines.append(_Line(topic.removeprefix(DLQ_PREFIX), count, newest))
    return sorted(lines, key=astuple)


@dlq.command(
    epilog="""\b
Examples:
  raptormq dlq show shipping
  raptormq dlq show shipping --max 1 -o json | jq '.[0].properties'"""
)
@click.argument("group", type=group_name, shell_complete=group_names)
@click.option(
    "--max",
    "max_messages",
    type=click.IntRange(1),
    default=_SHOWN,
    show_default=True,
    help="Maximum number of letters; the newest are shown.",
)
@output_option
@name_servers_option
@timeout_option
def show(group: str, max_messages: int, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the dead letters of GROUP in the order in which they were stored.

    The table contains the original topic and the beginning of each body, JSON all properties and the whole body.
    Encrypted letters require keys as for 'raptormq consume'.
    """

    async def read() -> list[MessageExt]:
        letters: list[MessageExt] = []
        async with PullConsumer(client_config=client_config(name_servers, timeout_s)) as consumer:
            async for some in _letters(consumer, group, timeout_s, newest=max_messages):
                letters += some
        return sorted(letters, key=lambda each: each.store_timestamp)[-max_messages:]

    with explaining(name_servers):
        letters = asyncio.run(read())
    if output == "json":
        print_json([fields(each) for each in letters])
    else:
        print_table(["stored", "topic", "message id", "tag", "keys", "body"], map(_row, letters))


@dlq.command(
    epilog="""\b
Examples:
  raptormq dlq resend shipping
  raptormq dlq resend shipping --id 7F00000100002A9F0000000000000000 --yes
  raptormq dlq resend shipping --again --yes"""
)
@click.argument("group", type=group_name, shell_complete=group_names)
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only the letter with this message id. Can be repeated.")
@click.option("--again", is_flag=True, help="Also letters that were resent before.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@name_servers_option
@timeout_option
def resend(group: str, ids: Sequence[str], again: bool, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Deliver the dead letters of GROUP to the group again, with all attempts.

    No other group receives them. Letters that were resent before are skipped, unless --again or --id selects them. The
    letters themselves stay until retention deletes them. If the command fails, repeat it: a letter may then be
    delivered twice.
    """
    config = client_config(name_servers, timeout_s)
    with explaining(name_servers):
        selected = asyncio.run(_selected(config, group, timeout_s, ids)) if ids else []
        waiting = len(selected) if ids else asyncio.run(_count(config, group, again=again))
        if not waiting:
            click.echo(f"group {group} has no letter to resend")
            return
        confirm(f"Deliver {waiting} dead letters to group {group} again?", yes=yes)
        with progress(f"→ {group}", None) as advance:
            resender = _Resender(config, group, timeout_s, advance)
            asyncio.run(resender.resend_all(selected) if ids else resender.resend_waiting(again=again))
    echo(f"{resender.sent} dead letters are delivered to group {group} again")


def resend_group(group: str) -> str:
    """Return the consumer group for which the progress of resending is committed."""
    return f"dlq-resend-{group}"


async def _count(config: ClientConfig, group: str, *, again: bool) -> int:
    """Return the number of letters to resend."""
    async with PullConsumer(client_config=config, group=resend_group(group)) as consumer:
        queues = await _queues(consumer, group)
        starts = await asyncio.gather(*(_start(consumer, queue, committed=not again) for queue in queues))
        ends = await asyncio.gather(*map(consumer.max_offset, queues))
    return sum(max(0, end - start) for start, end in zip(starts, ends, strict=True))


async def _selected(config: ClientConfig, group: str, timeout_s: float, ids: Sequence[str]) -> list[MessageExt]:
    """Return the letters with these ids.

    Raises:
        CommandFailed: one of the ids is not that of a dead letter.
    """
    async with PullConsumer(client_config=config) as consumer:
        letters = [
            each async for some in _letters(consumer, group, timeout_s) for each in some if each.message_id in ids
        ]
    found = {each.message_id for each in letters}
    missing = [each for each in ids if each not in found]
    if missing:
        raise CommandFailed(f"group {group} has no dead letter with the id {missing[0]}", ExitCode.NOT_FOUND)
    return letters


class _Resender:
    """Resends letters of a group. A separate producer encrypts the letters that were encrypted before."""

    def __init__(self, config: ClientConfig, group: str, timeout_s: float, advance: Advance) -> None:
        self._config = config
        self._group = group
        self._timeout_s = timeout_s
        self._advance = advance
        self._producers: dict[bool, Producer] = {}
        self.sent = 0
        """Number of letters that were resent."""

    async def resend_all(self, letters: Sequence[MessageExt]) -> None:
        """Resend these letters."""
        async with AsyncExitStack() as stack:
            await self._resend(letters, stack)

    async def resend_waiting(self, *, again: bool) -> None:
        """Resend all letters after the committed offsets, or with ``again`` all letters, and commit after each read."""
        async with AsyncExitStack() as stack:
            consumer = PullConsumer(client_config=self._config, group=resend_group(self._group))
            await stack.enter_async_context(consumer)
            async for letters in _letters(consumer, self._group, self._timeout_s, committed=not again):
                await self._resend(letters, stack)
                await consumer.commit()

    async def _resend(self, letters: Sequence[MessageExt], stack: AsyncExitStack) -> None:
        for letter in letters:
            encrypt = names.ENCRYPTION_KEY_ID in letter.properties
            if encrypt not in self._producers:
                producer = Producer("raptormq-cli", client_config=self._config, encrypt=encrypt)
                self._producers[encrypt] = await stack.enter_async_context(producer)
            try:
                await self._producers[encrypt].redeliver(letter, self._group, timeout=self._timeout_s)
            except RaptorMQError as error:
                raise CommandFailed(f"{error}; {self.sent} dead letters were resent") from error
            self.sent += 1
        self._advance(len(letters), sum(len(each.body) for each in letters))


async def _letters(
    consumer: PullConsumer, group: str, timeout_s: float, *, newest: int | None = None, committed: bool = False
) -> AsyncIterator[list[MessageExt]]:
    """Yield the dead letters that are stored when the generator starts.

    Args:
        consumer: reads the letters. The generator assigns the queues to it.
        group: the consumer group of the letters.
        timeout_s: time limit of one read in seconds.
        newest: number of letters to yield per queue, the newest ones; None for all letters.
        committed: whether to yield only letters after the committed offsets of the consumer's group.

    Raises:
        CommandFailed: the group has no dead letters, or a broker does not return them in time.
    """
    queues = await _queues(consumer, group)
    starts = await asyncio.gather(*(_start(consumer, queue, committed=committed) for queue in queues))
    ends = dict(zip(queues, await asyncio.gather(*map(consumer.max_offset, queues)), strict=True))
    consumer.assign(queues)
    for queue, start in zip(queues, starts, strict=True):
        consumer.seek(queue, start if newest is None else max(start, ends[queue] - newest))
    while True:
        consumer.assign(each for each in consumer.assignment if (consumer.position(each) or 0) < ends[each])
        if not consumer.assignment:
            return
        letters = await consumer.poll(timeout=timeout_s)
        if not letters:
            raise CommandFailed(f"the brokers returned no dead letters within {timeout_s:g} s", ExitCode.UNAVAILABLE)
        for queue in {each.queue for each in letters if each.queue_offset >= ends[each.queue]}:
            consumer.seek(queue, ends[queue])  # a commit of the caller must not pass letters that were not yielded
        yield [each for each in letters if each.queue_offset < ends[each.queue]]


async def _queues(consumer: PullConsumer, group: str) -> list[MessageQueue]:
    topic = dlq_topic(group)
    try:
        return await consumer.queues(topic)
    except NoRoute as error:
        text = f"group {group} has no dead letters: topic {topic} does not exist"
        raise CommandFailed(text, ExitCode.NOT_FOUND) from error


async def _start(consumer: PullConsumer, queue: MessageQueue, *, committed: bool) -> int:
    first = await consumer.min_offset(queue)
    return max(first, await consumer.committed(queue) or 0) if committed else first


def _row(letter: MessageExt) -> list[Cell]:
    origin = letter.properties.get(names.RETRY_TOPIC)
    keys = " ".join(letter.keys) or None
    return [moment(letter.store_timestamp), origin, letter.message_id, letter.tags, keys, preview(letter)]
