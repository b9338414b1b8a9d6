"""``raptormq convert-queue``: converts the queues of a topic to BatchCQ or SimpleCQ on all brokers with the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.conversion_bars import bars
from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.options import name_servers_option, output_option, timeout_option
from raptormq.cli.output import echo, print_json
from raptormq.client import AdminClient, QueueConversionState
from raptormq.errors import NoRoute, ServerError, TransportError
from raptormq.protocol.topic_attributes import BATCH_CQ, SIMPLE_CQ
from raptormq.protocol.topic_names import check_topic

MASTER_ID = 0
POLL_S = 0.2
SHOWN_DIGITS = 16
_GONE = ": the conversion was cancelled or the topic was recreated"

States = dict[str, QueueConversionState]
"""States of the conversion by broker name."""


@click.command(
    epilog="""\b
Examples:
  raptormq convert-queue --topic orders --to BatchCQ
  raptormq convert-queue orders --status
  raptormq convert-queue orders --stop
  raptormq convert-queue orders --to SimpleCQ -o json"""
)
@click.argument("argument", required=False, metavar="[TOPIC]")
@click.option("--topic", "option", metavar="TOPIC", help="Topic, instead of the argument.")
@click.option("--to", type=click.Choice([BATCH_CQ, SIMPLE_CQ]), help="New type of the queues.")
@click.option(
    "--stop", is_flag=True, help="Stop the conversion. --to resumes it; --to with the old type discards the new queues."
)
@click.option("--status", is_flag=True, help="Show the state of the conversion.")
@output_option
@name_servers_option
@timeout_option
def convert_queue(
    argument: str | None,
    option: str | None,
    to: str | None,
    stop: bool,
    status: bool,
    output: str,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Convert the queues of TOPIC to BatchCQ, or back to SimpleCQ, on all brokers with the topic.

    Messages, offsets and the progress of consumers do not change, and producers and consumers can continue. Each broker
    builds the new queues in the background, compares their checksum with the old queues, switches to the new queues,
    and removes the old ones. Neither an interrupt of this command (Ctrl-C) nor a restart of a broker stops the
    conversion; run the command again to see the progress. Queues with batches that are stored as one record cannot be
    converted to SimpleCQ. An unavailable broker is not converted; run the command again when it is available.
    """
    topic = _named(argument, option)
    if [to is not None, stop, status].count(True) != 1:
        raise click.UsageError("exactly one of --to, --stop and --status is required")
    action = "start" if to is not None else "stop" if stop else "status"

    async def run(admin: AdminClient) -> tuple[States, list[str]]:
        addresses = await _masters(admin, topic)
        states, refusals = await _ask_all(admin, addresses, topic, action, to)
        if action != "status":
            with bars() as show:
                refusals += await _watch(admin, addresses, topic, states, show)
        return states, refusals

    with _explained_interrupt(topic, watching=to is not None):
        states, refusals = with_admin(name_servers, timeout_s, run)
    lines = {name: f"{name}: {_describe(state)}" for name, state in states.items()}
    missed = [name for name, state in states.items() if to not in (None, state.queue_type)]
    refusals += [f"{lines[name]}{_GONE if states[name].phase == 'none' else ''}" for name in missed]
    if output == "json":
        print_json({name: _as_json(state) for name, state in states.items()})
    else:
        for name, line in lines.items():
            if name not in missed:  # otherwise the error line reports it
                echo(line)
    if refusals:
        raise CommandFailed("; ".join(refusals))


def _named(argument: str | None, option: str | None) -> str:
    named = [name for name in (argument, option) if name is not None]
    if len(named) != 1:
        raise click.UsageError("exactly one of TOPIC and --topic is required")
    check_topic(named[0])
    return named[0]


async def _masters(admin: AdminClient, topic: str) -> dict[str, str]:
    """Return the addresses of the masters with the topic, by broker name."""
    route = await admin.route(topic)
    found = {
        broker.broker_name: broker.broker_addrs[MASTER_ID]
        for broker in (route.brokers if route else ())
        if MASTER_ID in broker.broker_addrs
    }
    if not found:
        raise NoRoute.to(topic)
    return dict(sorted(found.items()))


async def _ask_all(
    admin: AdminClient, addresses: dict[str, str], topic: str, action: str, to: str | None
) -> tuple[States, list[str]]:
    """Send a request to all brokers concurrently. Return the states by broker, and the messages of failed requests."""

    async def ask(name: str, address: str) -> QueueConversionState | str:
        try:
            return await admin.convert_queue(address, topic, action, to)
        except ServerError as error:
            return f"{name}: {error}"
        except TransportError as error:
            hint = "" if action == "status" else f"; the broker may have received the request; see {_status_of(topic)}"
            return f"{name}: {error}{hint}"

    answers = await asyncio.gather(*(ask(*each) for each in addresses.items()))
    states = {name: each for name, each in zip(addresses, answers, strict=True) if not isinstance(each, str)}
    return states, [each for each in answers if isinstance(each, str)]


async def _watch(
    admin: AdminClient, addresses: dict[str, str], topic: str, states: States, show: Callable[[States], None]
) -> list[str]:
    """Poll until no broker is converting, and update ``states``. Remove brokers that cannot be polled from ``states``,
    and return their errors.
    """
    failures: list[str] = []

    async def look(name: str, address: str) -> None:
        try:
            states[name] = await admin.convert_queue(address, topic, "status")
        except ServerError as error:  # the topic was deleted
            del states[name]
            failures.append(f"{name}: {error}")
        except TransportError as error:
            del states[name]
            hint = f"the conversion resumes when the broker is available; see {_status_of(topic)}"
            failures.append(f"{name}: {error}; {hint}")

    while any(state.is_under_way for state in states.values()):
        show(states)
        await asyncio.sleep(POLL_S)
        await asyncio.gather(*(look(name, addresses[name]) for name in states))
    show(states)
    return sorted(failures)


def _status_of(topic: str) -> str:
    return f"raptormq convert-queue {topic} --status"


@contextmanager
def _explained_interrupt(topic: str, *, watching: bool) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if watching:
            click.echo(f"the brokers continue the conversion; see {_status_of(topic)}", err=True)
        raise


def _describe(state: QueueConversionState) -> str:
    types = f"{state.queue_type} to {state.target}" if state.target not in ("", state.queue_type) else state.queue_type
    count = f"{state.done:,} of {state.total:,} messages"
    match state.phase:
        case "none":
            return f"{state.queue_type}, nothing to convert"
        case "done":
            before, after = state.checksum_before[:SHOWN_DIGITS], state.checksum_after[:SHOWN_DIGITS]
            sums = f", checksum {before} before, {after} after" if before else ""
            return f"{state.queue_type}, {state.total:,} messages, switched at log offset {state.switch_offset}{sums}"
        case "refused":
            return f"{state.queue_type}, not converted: {state.remark}"
        case "failed":
            return f"{types}, stopped at {count}: {state.remark}; fix the cause and run the same command to resume"
    return f"{types}, {state.phase}, {count}"


def _as_json(state: QueueConversionState) -> dict[str, object]:
    return {
        "queue_type": state.queue_type,
        "target": state.target,
        "phase": state.phase,
        "remark": state.remark,
        "done": state.done,
        "total": state.total,
        "switch_offset": state.switch_offset,
        "checksum_before": state.checksum_before,
        "checksum_after": state.checksum_after,
    }
