"""``raptormq produce``: sends the lines of a file or of stdin as messages."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import BinaryIO

import click
import uvloop

from raptormq.cli.connecting import client_config
from raptormq.cli.hints import CommandFailed, explaining
from raptormq.cli.lines import read_lines
from raptormq.cli.options import message_key, message_tag, name_servers_option, timeout_option
from raptormq.cli.progress import Advance, progress
from raptormq.cli.sent_lines import SentLines
from raptormq.client import Message, Producer, ProducerConfig
from raptormq.client.message import body_too_large
from raptormq.errors import MessageError, RaptorMQError
from raptormq.protocol.properties import KEY_SEPARATOR
from raptormq.protocol.topic_names import check_topic, is_derived_topic

GROUP = "raptormq-cli"
MAX_BATCH_BYTES = 256 * 1024
"""A batch is closed at this size, far below the broker's limit of 4 MiB."""
BATCHES_IN_FLIGHT = 16
LINE_FEED_BYTES = 1


@dataclass(frozen=True, slots=True)
class Job:
    """What to send."""

    topic: str
    tag: str | None
    keys: tuple[str, ...]
    batch_size: int
    timeout_s: float

    @property
    def sharding_key(self) -> str | None:
        """What all messages are ordered by: the text of all keys."""
        return KEY_SEPARATOR.join(self.keys) or None

    def message(self, line: bytes) -> Message:
        """Return the message for a line."""
        return Message(self.topic, line, tags=self.tag, keys=self.keys)


@click.command(
    epilog="""\b
Examples:
  raptormq produce orders orders.txt --tag new
  tail -f app.log | raptormq produce logs --key "$HOSTNAME"
  seq 1000 | raptormq produce numbers --batch 100"""
)
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--key",
    "keys",
    type=message_key,
    multiple=True,
    metavar="KEY",
    help="Key of every message, to find it by; may be given more than once. Messages with a key go to the queue of the "
    "key, in the order of the lines.",
)
@click.option("--tag", type=message_tag, metavar="TAG", help="Tag of every message, to filter by.")
@click.option(
    "--batch",
    "batch_size",
    type=click.IntRange(1, 10_000),
    default=32,
    show_default=True,
    help="Send up to this many lines per request; 1 sends them one by one, as for %RETRY% and %DLQ% topics.",
)
@name_servers_option
@timeout_option
def produce(
    topic: str,
    file: BinaryIO,
    keys: tuple[str, ...],
    tag: str | None,
    batch_size: int,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Send every line of FILE (default: stdin) to TOPIC as one message.

    Lines are sent as they arrive; empty lines are skipped. The number of sent messages is printed to stderr, also when
    the command ends early: on Ctrl-C, at a line that is too large (later lines are not sent), or when a broker refuses
    a message or is unavailable and no other accepts it. The command does not wait for a broker to come back.
    """
    check_topic(topic)  # checked now, because the first line may arrive late
    job = Job(topic, tag, keys, 1 if is_derived_topic(topic) else batch_size, timeout_s)
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
    skipped = f", {sent.empty} empty lines left out" if sent.empty else ""
    click.echo(f"{sent.messages} messages sent to {topic}{skipped}", err=True)


def _size_of(file: BinaryIO) -> int | None:
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def _send_all(name_servers: str, job: Job, file: BinaryIO, sent: SentLines, advance: Advance) -> None:
    config = client_config(name_servers, job.timeout_s)
    settings = ProducerConfig()
    async with Producer(GROUP, config=settings, client_config=config) as producer:
        async for lines in read_lines(file):
            before = sent.read
            taken = _taken(lines, settings.max_message_bytes)
            sent.begin(len(taken))
            messages = {number: job.message(line) for number, line in enumerate(taken, before + 1) if line}
            sent.empty += len(taken) - len(messages)
            await _send_in_batches(producer, job, messages, sent, advance)
            if len(taken) < len(lines):
                size = len(lines[len(taken)])
                raise MessageError(f"line {sent.read + 1}: {body_too_large(size, settings)}")


def _taken(lines: list[bytes], max_bytes: int) -> list[bytes]:
    """Return the lines before the first one that is too large; later lines are not sent."""
    if max(map(len, lines)) <= max_bytes:
        return lines
    return list(takewhile(lambda line: len(line) <= max_bytes, lines))


async def _send_in_batches(
    producer: Producer, job: Job, messages: dict[int, Message], sent: SentLines, advance: Advance
) -> None:
    """Send messages, given with their line numbers. Returns or raises when no request is in progress any more."""
    batches = _with_first_lines(cut(messages.values(), job.batch_size), list(messages))

    async def send_some() -> None:
        for first_line, batch in batches:  # shared: each free sender takes the next batch
            try:
                with sent.sending(first_line, len(batch)):
                    if len(batch) == 1:
                        await producer.send(batch[0], key=job.sharding_key, timeout=job.timeout_s)
                    else:
                        await producer.send_batch(batch, key=job.sharding_key, timeout=job.timeout_s)
            except BaseException:
                batches.close()  # the other senders take no further batch
                raise
            advance(len(batch), sum(len(message.body) + LINE_FEED_BYTES for message in batch))

    # One request at a time keeps the order of messages with a key.
    senders = 1 if job.keys else BATCHES_IN_FLIGHT
    # Wait for all requests, also after a failure: only then it is known which lines were sent.
    for outcome in await asyncio.gather(*(send_some() for _ in range(senders)), return_exceptions=True):
        if outcome is not None:
            raise outcome


def _with_first_lines(batches: Iterable[list[Message]], numbers: Sequence[int]) -> Generator[tuple[int, list[Message]]]:
    """Yield each batch with the line number of its first message; ``numbers`` has the line number of each message."""
    done = 0
    for batch in batches:
        yield numbers[done], batch
        done += len(batch)


def cut(messages: Iterable[Message], batch_size: int) -> Iterator[list[Message]]:
    """Yield lists of at most ``batch_size`` messages and :data:`MAX_BATCH_BYTES` bytes (one message may be larger)."""
    batch: list[Message] = []
    batch_bytes = 0
    for message in messages:
        if batch and (len(batch) == batch_size or batch_bytes + len(message.body) > MAX_BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(message)
        batch_bytes += len(message.body)
    if batch:
        yield batch
