"""``raptormq consume``: prints the messages of a topic to standard output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
import uvloop

from raptormq.cli import message_format
from raptormq.cli.completing import group_names, topic_names
from raptormq.cli.connecting import client_config
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.hints import explaining
from raptormq.cli.options import name_servers_option, queue_name, start_position, timeout_option
from raptormq.cli.output import echo
from raptormq.client import MessageExt, MessageQueue, PullConsumer, Sql
from raptormq.client.settings import LONG_MAX
from raptormq.errors import RecordError

FOLLOW_OUTAGE_S = 30.0
"""Time for which a broker may be unavailable with --follow, for example during a restart, in seconds."""

FORMATS: dict[str, Callable[[MessageExt], bytes]] = {"raw": message_format.raw, "json": message_format.as_json}


@dataclass(frozen=True, slots=True)
class Job:
    """Options of the command.

    ``start`` is ``"earliest"``, ``"latest"`` or ms since 1970. ``offset`` replaces ``start``: a queue offset or, if
    negative, a number of messages before the end. ``queues`` has a broker name (None for any) and a queue id for each
    queue to read; if empty, all queues are read.
    """

    topic: str
    start: str | int
    offset: int | None
    queues: tuple[tuple[str | None, int], ...]
    follow: bool
    max_messages: int | None
    group: str | None
    wanted: str | Sql
    timeout_s: float
    encode: Callable[[MessageExt], bytes]


@click.command(
    epilog="""\b
Examples:
  raptormq consume orders --no-follow
  raptormq consume orders --from latest --tag "new || paid" --format json
  raptormq consume orders --sql "price > 100 AND region = 'north'"
  raptormq consume orders --from 2024-05-01T12:00:00Z --max 10
  raptormq consume orders --queue broker-a:0 --offset 1500 --max 1
  raptormq consume orders --offset -10 --no-follow
  raptormq consume orders --group reports --no-follow"""
)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--from",
    "start",
    type=start_position,
    metavar="earliest|latest|TIMESTAMP",
    help="Start position, by default earliest, unless the group has a committed offset. A time is in milliseconds "
    "since 1970 or like 2024-05-01T12:00:00Z.",
)
@click.option(
    "--offset",
    type=click.IntRange(-LONG_MAX, LONG_MAX),
    metavar="OFFSET",
    help="Start at this offset of each queue, instead of --from. A negative number counts from the end of the queue.",
)
@click.option(
    "--queue",
    "queues",
    type=queue_name,
    multiple=True,
    metavar="[BROKER:]ID",
    help="Read only this queue. Can be repeated.",
)
@click.option("--max", "max_messages", type=click.IntRange(1), help="Maximum number of messages.")
@click.option(
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="Wait for new messages at the end of the topic, or exit.",
)
@click.option(
    "--group", shell_complete=group_names, help="Start at the committed offsets of this group, and commit offsets."
)
@click.option("--tag", "tags", help='Only messages with this tag, or "A || B".')
@click.option("--sql", help="Only messages whose properties match; evaluated by the broker (enablePropertyFilter).")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(FORMATS)),
    default="raw",
    show_default=True,
    help="Bodies, one per line, or one JSON object per line.",
)
@name_servers_option
@timeout_option
def consume(
    topic: str,
    start: str | int | None,
    offset: int | None,
    queues: tuple[tuple[str | None, int], ...],
    max_messages: int | None,
    follow: bool,
    group: str | None,
    tags: str | None,
    sql: str | None,
    output_format: str,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Print the messages of TOPIC.

    The command reads all queues and prints the messages of each queue in order. With --group the brokers store the
    offsets of the group. Run only one such command per group at a time, because it reads all queues of the topic.
    Encrypted messages are decrypted with the keys in RAPTORMQ_ENCRYPTION_KEYS (NAME=BASE64,...) or in the folder
    RAPTORMQ_ENCRYPTION_KEY_FOLDER.
    """
    if tags is not None and sql is not None:
        raise click.UsageError("--tag and --sql are mutually exclusive")
    if start is not None and offset is not None:
        raise click.UsageError("--from and --offset are mutually exclusive")
    wanted = Sql(sql) if sql is not None else tags or "*"
    job = Job(
        topic,
        start or "earliest",
        offset,
        queues,
        follow,
        max_messages,
        group,
        wanted,
        timeout_s,
        FORMATS[output_format],
    )
    with explaining(name_servers):
        uvloop.run(_consume(name_servers, job))


async def _consume(name_servers: str, job: Job) -> None:
    config = client_config(name_servers, job.timeout_s)
    async with PullConsumer(client_config=config, group=job.group, expression=job.wanted) as consumer:
        queues = _selected(await consumer.queues(job.topic), job)
        starts = await asyncio.gather(*(_start(consumer, job, queue) for queue in queues))
        consumer.assign(queues)
        for queue, offset in zip(queues, starts, strict=True):
            consumer.seek(queue, offset)
        if job.group is not None:
            await consumer.commit()  # commit the start offsets, so that --from applies only once
        if job.follow:
            await _print_until_done(consumer, job, {})
        else:
            ends = await asyncio.gather(*map(consumer.max_offset, queues))
            await _print_until_done(consumer, job, dict(zip(queues, ends, strict=True)))


def _selected(queues: Sequence[MessageQueue], job: Job) -> list[MessageQueue]:
    """Return the queues to read.

    Raises:
        CommandFailed: a queue of the options does not exist.
    """
    if not job.queues:
        return list(queues)
    selected: dict[MessageQueue, None] = {}
    for broker, number in job.queues:
        found = [each for each in queues if each.queue_id == number and broker in (None, each.broker_name)]
        if not found:
            name = number if broker is None else f"{broker}:{number}"
            there = ", ".join(f"{each.broker_name}:{each.queue_id}" for each in queues)
            raise CommandFailed(f"topic {job.topic} has no queue {name}; its queues are {there}", ExitCode.NOT_FOUND)
        selected |= dict.fromkeys(found)
    return list(selected)


async def _start(consumer: PullConsumer, job: Job, queue: MessageQueue) -> int:
    if job.group is not None:
        committed = await consumer.committed(queue)
        if committed is not None:
            return committed
    if job.offset is not None:
        return await _at_offset(consumer, queue, job.offset)
    if job.start == "earliest":
        return await consumer.min_offset(queue)
    if job.start == "latest":
        return await consumer.max_offset(queue)
    return await consumer.offset_by_time(queue, int(job.start))


async def _at_offset(consumer: PullConsumer, queue: MessageQueue, offset: int) -> int:
    """Return the offset to start at.

    Raises:
        CommandFailed: the queue does not have the offset.
    """
    first, end = await asyncio.gather(consumer.min_offset(queue), consumer.max_offset(queue))
    if offset < 0:
        return max(first, end + offset)
    if not first <= offset <= end:
        raise CommandFailed(
            f"offset {offset} is out of range: {queue.broker_name}:{queue.queue_id} has offsets {first} to {end}; "
            "select a queue with --queue"
        )
    return offset


async def _print_until_done(consumer: PullConsumer, job: Job, ends: dict[MessageQueue, int]) -> None:
    """Print messages as they arrive. With ``ends``, stop at these end offsets of the queues. Unreadable messages are
    reported and skipped.
    """
    left = job.max_messages
    trouble = ""
    while left != 0:
        if ends:
            consumer.assign(queue for queue in consumer.assignment if (consumer.position(queue) or 0) < ends[queue])
            if not consumer.assignment:
                return
        try:
            messages = await consumer.poll(timeout=FOLLOW_OUTAGE_S if job.follow else job.timeout_s)
        except RecordError as error:
            if str(error) == trouble:  # the consumer cannot skip the message
                raise
            trouble, messages = str(error), []
            echo(f"raptormq: {trouble}", err=True)
        if left is not None:
            _put_back(consumer, messages[left:])
            messages = messages[:left]
            left -= len(messages)
        sys.stdout.buffer.write(b"".join(map(job.encode, messages)))
        sys.stdout.buffer.flush()
        if job.group is not None:
            await consumer.commit()


def _put_back(consumer: PullConsumer, messages: Sequence[MessageExt]) -> None:
    """Reset the position of each queue to its first message in ``messages``, which were not printed."""
    for message in reversed(messages):
        consumer.seek(message.queue, message.queue_offset)
