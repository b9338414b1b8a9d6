"""``raptormq consume``: prints the messages of a topic to standard output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
import uvloop

from raptormq.cli import message_format
from raptormq.cli.connecting import client_config
from raptormq.cli.hints import explaining
from raptormq.cli.options import name_servers_option, start_position, timeout_option
from raptormq.cli.output import echo
from raptormq.client import MessageExt, MessageQueue, PullConsumer, Sql
from raptormq.errors import RecordError

FOLLOW_OUTAGE_S = 30.0
"""How long a broker may be unavailable (for example to restart) while following."""

FORMATS: dict[str, Callable[[MessageExt], bytes]] = {"raw": message_format.raw, "json": message_format.as_json}


@dataclass(frozen=True, slots=True)
class Job:
    """What to read. ``start`` is ``"earliest"``, ``"latest"`` or milliseconds since 1970."""

    topic: str
    start: str | int
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
  raptormq consume orders --group reports --no-follow"""
)
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=start_position,
    default="earliest",
    show_default=True,
    metavar="earliest|latest|TIMESTAMP",
    help="Where to begin, unless the group has a position; a time is in milliseconds since 1970 or like "
    "2024-05-01T12:00:00Z.",
)
@click.option("--max", "max_messages", type=click.IntRange(1), help="End after this many messages.")
@click.option(
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="At the end of the topic wait for more, or end.",
)
@click.option("--group", help="Continue at the committed offsets of this group, and commit progress.")
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
    start: str | int,
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

    All queues are read; the messages of one queue are printed in order. With --group the brokers store the offsets
    under that name. Run only one such command per group at a time, because it does not share the queues with others.
    Encrypted messages are decrypted with the keys in RAPTORMQ_ENCRYPTION_KEYS (NAME=BASE64,...), or else in the folder
    RAPTORMQ_ENCRYPTION_KEY_FOLDER.
    """
    if tags is not None and sql is not None:
        raise click.UsageError("--tag and --sql cannot go together")
    wanted = Sql(sql) if sql is not None else tags or "*"
    job = Job(topic, start, follow, max_messages, group, wanted, timeout_s, FORMATS[output_format])
    with explaining(name_servers):
        uvloop.run(_consume(name_servers, job))


async def _consume(name_servers: str, job: Job) -> None:
    config = client_config(name_servers, job.timeout_s)
    async with PullConsumer(client_config=config, group=job.group, expression=job.wanted) as consumer:
        queues = await consumer.queues(job.topic)
        starts = await asyncio.gather(*(_start(consumer, job, queue) for queue in queues))
        consumer.assign(queues)
        for queue, offset in zip(queues, starts, strict=True):
            consumer.seek(queue, offset)
        if job.group is not None:
            await consumer.commit()  # the start offsets are progress too: --from applies once
        if job.follow:
            await _print_until_done(consumer, job, {})
        else:
            ends = await asyncio.gather(*map(consumer.max_offset, queues))
            await _print_until_done(consumer, job, dict(zip(queues, ends, strict=True)))


async def _start(consumer: PullConsumer, job: Job, queue: MessageQueue) -> int:
    if job.group is not None:
        committed = await consumer.committed(queue)
        if committed is not None:
            return committed
    if job.start == "earliest":
        return await consumer.min_offset(queue)
    if job.start == "latest":
        return await consumer.max_offset(queue)
    return await consumer.offset_by_time(queue, int(job.start))


async def _print_until_done(consumer: PullConsumer, job: Job, ends: dict[MessageQueue, int]) -> None:
    """Print messages as they arrive; with ``ends`` (the end offset of each queue) up to there. Messages that cannot be
    read are reported and skipped.
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
            if str(error) == trouble:  # the consumer cannot get past the message
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
    """Reset each queue's position to its first message in ``messages``, which were not printed."""
    for message in reversed(messages):
        consumer.seek(message.queue, message.queue_offset)
