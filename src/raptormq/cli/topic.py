"""``raptormq topic``: creates, lists, describes and deletes topics."""

from __future__ import annotations

from collections.abc import Iterable

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.completing import topic_names
from raptormq.cli.confirming import confirm
from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.options import key_and_value, name_servers_option, output_option, timeout_option
from raptormq.cli.output import echo, print_json
from raptormq.cli.topic_description import as_json, print_description
from raptormq.client import AdminClient, ClusterInfo, MessageQueue, TopicChange, TopicConfig, TopicOffset
from raptormq.errors import NoRoute
from raptormq.protocol.topic_names import is_derived_topic, is_system_topic, reply_topic

PERMISSIONS = {"rw": 6, "r": 4, "w": 2}
WORDS = {
    TopicChange.CREATED: "created",
    TopicChange.CHANGED: "changed",
    TopicChange.UNCHANGED: "unchanged",
}

_queues = click.IntRange(1, 65_536)


@click.group(
    epilog="""\b
Examples:
  raptormq topic create orders --queues 8
  raptormq topic list
  raptormq topic describe orders -o json
  raptormq topic delete orders --yes"""
)
def topic() -> None:
    """Create, list, describe and delete topics."""


@topic.command(
    epilog="""\b
Examples:
  raptormq topic create orders --queues 8
  raptormq topic create orders --attribute message.type=FIFO
  raptormq topic create archive --read-queues 8 --write-queues 4 --perm r"""
)
@click.argument("name")
@click.option("--queues", type=_queues, help="Number of queues on each broker, by default 8 for a new topic.")
@click.option("--read-queues", type=_queues, help="Number of read queues, if different from --queues.")
@click.option("--write-queues", type=_queues, help="Number of write queues, if different from --queues.")
@click.option("--perm", type=click.Choice(list(PERMISSIONS)), help="Permissions, by default rw for a new topic.")
@click.option(
    "--attribute",
    "attributes",
    type=key_and_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="Topic attribute, such as message.type=FIFO or queue.type=BatchCQ.",
)
@click.option("--order/--no-order", default=None, help="Whether the topic is for ordered messages, by default not.")
@click.option("--yes", is_flag=True, help="Reduce the read queues even if that hides messages.")
@name_servers_option
@timeout_option
def create(
    name: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    attributes: tuple[tuple[str, str], ...],
    order: bool | None,
    yes: bool,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Create the topic NAME on all master brokers, or change it if it exists.

    Settings without an option are not changed. If the number of read queues is reduced, consumers cannot read the
    messages of the removed queues. Such a change requires --yes.
    """
    to_read = read_queues or queues
    wanted = _attributes(attributes)

    async def run(admin: AdminClient) -> dict[str, TopicChange]:
        if to_read is not None and not yes:
            await _refuse_hiding(admin, name, to_read)
        return await admin.create_topic(
            name,
            to_read,
            write_queues or queues,
            perm=PERMISSIONS[perm] if perm is not None else None,
            attributes=wanted,
            order=order,
        )

    changes = with_admin(name_servers, timeout_s, run)
    for change, words in WORDS.items():
        addresses = sorted(address for address, each in changes.items() if each is change)
        if addresses:
            where = f" on {', '.join(addresses)}" if len(addresses) < len(changes) else ""
            click.echo(f"topic {name} is {words}{where}")


def _attributes(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in given:
        name = key.removeprefix("+")  # mqadmin writes +KEY=VALUE
        if name in found:
            raise click.UsageError(f"--attribute {name} is given twice")
        found[name] = value
    return found


async def _refuse_hiding(admin: AdminClient, name: str, read_queues: int) -> None:
    """Raise :class:`CommandFailed` if consumers could no longer read messages of the topic."""
    route = await admin.route(name)
    if route is None:
        return
    stats = await admin.topic_stats(name)
    read_now = {queues.broker_name: queues.read_queue_nums for queues in route.queues}
    reporting = {queue.broker_name for queue in stats}  # a broker may have registered with one name server only
    unknown = sorted(broker for broker, count in read_now.items() if count > read_queues and broker not in reporting)
    if unknown:
        raise CommandFailed(
            f"cannot check whether {read_queues} read queues of topic {name} would hide messages on "
            f"{', '.join(unknown)}; repeat the command, or use --yes to skip the check"
        )
    hidden = sum(
        offsets.max_offset - offsets.min_offset
        for queue, offsets in stats.items()
        if read_queues <= queue.queue_id < read_now.get(queue.broker_name, 0)
    )
    if hidden:
        raise CommandFailed(
            f"{read_queues} read queues of topic {name} would hide {hidden} messages; reduce only --write-queues until "
            "they are consumed, then repeat the command with --yes"
        )


@topic.command(
    name="list",
    epilog="""\b
Examples:
  raptormq topic list
  raptormq topic list --all -o json""",
)
@click.option("--all", "show_all", is_flag=True, help="Include retry, dead-letter and system topics.")
@output_option
@name_servers_option
@timeout_option
def list_topics(show_all: bool, output: str, name_servers: str, timeout_s: float) -> None:
    """List the topics of all brokers."""

    async def run(admin: AdminClient) -> tuple[list[str], ClusterInfo]:
        return await admin.topics(), await admin.cluster_info()

    names, info = with_admin(name_servers, timeout_s, run)
    internal = {*info.clusters, *info.brokers, *map(reply_topic, info.clusters)}
    shown = [name for name in names if show_all or not (name in internal or _is_internal(name))]
    if output == "json":
        print_json(shown)
    else:
        for name in shown:
            echo(name)


@topic.command(
    epilog="""\b
Examples:
  raptormq topic describe orders
  raptormq topic describe orders -o json -n 'ns-0:9876;ns-1:9876'"""
)
@click.argument("name", shell_complete=topic_names)
@output_option
@name_servers_option
@timeout_option
def describe(name: str, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the brokers of the topic NAME, its configuration and the bounds of its queues."""

    async def run(admin: AdminClient) -> tuple[dict[str, TopicConfig], dict[MessageQueue, TopicOffset]]:
        stats = await admin.topic_stats(name)
        route = await admin.route(name)
        configs: dict[str, TopicConfig] = {}
        for broker in route.brokers if route else ():
            address = broker.broker_addrs[min(broker.broker_addrs)]
            config = await admin.topic_config(address, name)
            if config is not None:
                configs[broker.broker_name] = config
        return configs, stats

    configs, stats = with_admin(name_servers, timeout_s, run)
    if output == "json":
        print_json(as_json(name, configs, stats))
    else:
        print_description(name, configs, stats)


@topic.command(
    epilog="""\b
Examples:
  raptormq topic delete orders
  raptormq topic delete orders --yes"""
)
@click.argument("name", shell_complete=topic_names)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@name_servers_option
@timeout_option
def delete(name: str, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Delete the topic NAME with all its messages on all brokers."""

    async def require(admin: AdminClient) -> None:
        if await admin.route(name) is None:
            raise NoRoute.to(name)

    async def run(admin: AdminClient) -> None:
        await admin.delete_topic(name)

    with_admin(name_servers, timeout_s, require)
    confirm(f"Delete topic {name} with all its messages?", yes=yes)
    with_admin(name_servers, timeout_s, run)
    click.echo(f"topic {name} is deleted")


def _is_internal(name: str) -> bool:
    return is_system_topic(name) or is_derived_topic(name)
