"""``raptormq produce``: sends the lines of a file or of stdin as messages."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import click
import uvloop

from raptormq.cli.completing import topic_names
from raptormq.cli.connecting import client_config
from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.hints import explaining
from raptormq.cli.json_line import Outgoing, check_fields, parse_json_line
from raptormq.cli.lines import read_lines
from raptormq.cli.options import (
    key_and_value,
    message_key,
    message_tag,
    name_servers_option,
    positive_seconds,
    timeout_option,
)
from raptormq.cli.progress import Advance, progress
from raptormq.cli.sent_lines import SentLines
from raptormq.client import Delay, Message, Producer, ProducerConfig
from raptormq.client.message import body_too_large
from raptormq.errors import MessageError, RaptorMQError
from raptormq.protocol.properties import KEY_SEPARATOR
from raptormq.protocol.topic_names import check_topic, is_derived_topic

GROUP = "raptormq-cli"
MAX_BATCH_BYTES = 256 * 1024
"""Maximum size of a batch. The limit of the broker is 4 MiB."""
BATCHES_IN_FLIGHT = 16
LINE_FEED_BYTES = 1


@dataclass(frozen=True, slots=True)
class Job:
    """Options of the command. ``parse`` returns the message of a line, or raises :class:`MessageError`."""

    parse: Callable[[bytes], Outgoing]
    batch_size: int
    timeout_s: float


@click.command(
    epilog="""\b
Examples:
  raptormq produce orders orders.txt --tag new
  tail -f app.log | raptormq produce logs --key "$HOSTNAME"
  seq 1000 | raptormq produce numbers --batch 100
  raptormq produce reminders reminders.txt --delay 3600
  raptormq consume orders --no-follow --format json | raptormq produce copy --format json"""
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--key",
    "keys",
    type=message_key,
    multiple=True,
    metavar="KEY",
    help="Key of every message. Can be repeated. Messages with a key are sent to one queue in the order of the lines.",
)
@click.option("--tag", type=message_tag, metavar="TAG", help="Tag of every message.")
@click.option(
    "--property",
    "properties",
    type=key_and_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of every message. Can be repeated.",
)
@click.option(
    "--delay",
    "delay_s",
    type=positive_seconds,
    metavar="SECONDS",
    help="Deliver every message this long after the broker has received it.",
)
@click.option(
    "--format",
    "input_format",
    type=click.Choice(["raw", "json"]),
    default="raw",
    show_default=True,
    help="Each line is the body of a message, or a JSON object with body or body_base64, tag, keys, sharding_key, "
    "properties, delay_seconds or deliver_at, and priority.",
)
@click.option(
    "--batch",
    "batch_size",
    type=click.IntRange(1, 10_000),
    default=32,
    show_default=True,
    help="Maximum number of lines per request. It is always 1 for %RETRY% and %DLQ% topics.",
)
@name_servers_option
@timeout_option
def produce(
    topic: str,
    file: BinaryIO,
    keys: tuple[str, ...],
    tag: str | None,
    properties: tuple[tuple[str, str], ...],
    delay_s: float | None,
    input_format: str,
    batch_size: int,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Send each line of FILE (default: standard input) to TOPIC as one message.

    Lines are sent as they arrive. Empty lines are skipped. At the end, the command prints the number of sent messages
    to standard error. The command stops early after Ctrl-C, at a line that is too large, or if no broker accepts a
    message. It does not wait for unavailable brokers.

    With --format json it also reads what 'raptormq consume --format json' prints, without the system properties.
    """
    check_topic(topic)  # before the first line, which may arrive late
    if input_format == "json" and (keys or tag or properties or delay_s):
        raise click.UsageError("--key, --tag, --property and --delay are fields of each line with --format json")
    delay = Delay.by(delay_s) if delay_s is not None else None
    template = Message(topic, b"", tags=tag, keys=keys, properties=dict(properties), delay=delay)
    check_fields(template)
    parse = partial(parse_json_line, topic) if input_format == "json" else partial(_raw_line, template)
    job = Job(parse, 1 if is_derived_topic(topic) else batch_size, timeout_s)
    sent = SentLines()
    try:
        with explaining(name_servers), progress(f"→ {topic}", _size_of(file)) as advance:
            uvloop.run(_send_all(name_servers, job, file, sent, advance))
    except RaptorMQError as error:
        if sent.messages or isinstance(error, MessageError):
            raise CommandFailed(f"{error}; {sent.known()}") from error
        raise
    except KeyboardInterrupt:
        click.echo(f"interrupted; {sent.known()}", err=True)
        raise
    skipped = f", {sent.empty} empty lines skipped" if sent.empty else ""
    click.echo(f"{sent.messages} messages sent to {topic}{skipped}", err=True)


def _raw_line(template: Message, line: bytes) -> Outgoing:
    """Return the message whose body is the line. The keys, separated by spaces, are the sharding key."""
    keys = template.keys
    message = Message(
        template.topic, line, tags=template.tags, keys=keys, properties=template.properties, delay=template.delay
    )
    return Outgoing(message, KEY_SEPARATOR.join(keys) or None)


def _size_of(file: BinaryIO) -> int | None:
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def _send_all(name_servers: str, job: Job, file: BinaryIO, sent: SentLines, advance: Advance) -> None:
    config = client_config(name_servers, job.timeout_s)
    settings = ProducerConfig()
    async with Producer(GROUP, config=settings, client_config=config) as producer:
        async for lines in read_lines(file):
            before = sent.read
            messages, invalid = _parse(lines, job.parse, settings)
            accepted = len(lines) if invalid is None else invalid.index
            sent.begin(accepted)
            sent.empty += accepted - len(messages)
            numbered = {before + 1 + index: each for index, each in messages.items()}
            await _send_in_batches(producer, job, numbered, sent, advance)
            if invalid is not None:
                raise MessageError(f"line {sent.read + 1}: {invalid.reason}")


@dataclass(frozen=True, slots=True)
class _Invalid:
    """The first line of a read that is not a valid message. Later lines are not sent."""

    index: int
    reason: str


def _parse(
    lines: list[bytes], parse: Callable[[bytes], Outgoing], settings: ProducerConfig
) -> tuple[dict[int, Outgoing], _Invalid | None]:
    """Return the messages before the first invalid line by the index of their line, and that line. Empty lines are
    skipped.
    """
    messages: dict[int, Outgoing] = {}
    for index, line in enumerate(lines):
        if not line:
            continue
        try:
            outgoing = parse(line)
        except MessageError as error:
            return messages, _Invalid(index, str(error))
        size = len(outgoing.message.body)
        if size > settings.max_message_bytes:
            return messages, _Invalid(index, str(body_too_large(size, settings)))
        messages[index] = outgoing
    return messages, None


async def _send_in_batches(
    producer: Producer, job: Job, messages: dict[int, Outgoing], sent: SentLines, advance: Advance
) -> None:
    """Send messages, which are given by line number. Return or raise after the end of all requests."""
    batches = _with_first_lines(cut(messages.values(), job.batch_size), list(messages))

    async def send_some() -> None:
        for first_line, batch in batches:  # all senders read from the same iterator
            key, listed = batch[0].sharding_key, [each.message for each in batch]
            try:
                with sent.sending(first_line, len(batch)):
                    if len(batch) == 1:
                        await producer.send(listed[0], key=key, timeout=job.timeout_s)
                    else:
                        await producer.send_batch(listed, key=key, timeout=job.timeout_s)
            except BaseException:
                batches.close()  # ends the loops of the other senders
                raise
            advance(len(batch), sum(len(message.body) + LINE_FEED_BYTES for message in listed))

    # Messages with a key are ordered, so only one request is in progress.
    ordered = any(each.sharding_key is not None for each in messages.values())
    # Wait for all requests even after a failure, to know which lines were sent.
    senders = (send_some() for _ in range(1 if ordered else BATCHES_IN_FLIGHT))
    for outcome in await asyncio.gather(*senders, return_exceptions=True):
        if outcome is not None:
            raise outcome


def _with_first_lines(
    batches: Iterable[list[Outgoing]], numbers: Sequence[int]
) -> Generator[tuple[int, list[Outgoing]]]:
    """Yield each batch with the line number of its first message. ``numbers`` are the line numbers of all messages."""
    done = 0
    for batch in batches:
        yield numbers[done], batch
        done += len(batch)


def cut(messages: Iterable[Outgoing], batch_size: int) -> Iterator[list[Outgoing]]:
    """Yield lists of up to ``batch_size`` messages and :data:`MAX_BATCH_BYTES` bytes with the same sharding key. One
    message may be larger. A message that cannot be part of a batch is a list of its own.
    """
    batch: list[Outgoing] = []
    batch_bytes = 0
    for each in messages:
        full = len(batch) == batch_size or batch_bytes + len(each.message.body) > MAX_BATCH_BYTES
        if batch and (full or not _fit(batch[-1], each)):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(each)
        batch_bytes += len(each.message.body)
    if batch:
        yield batch


def _fit(first: Outgoing, second: Outgoing) -> bool:
    """Return whether a batch can contain both messages."""
    return first.sharding_key == second.sharding_key and not (
        first.message.is_individual or second.message.is_individual
    )
