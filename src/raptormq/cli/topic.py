"""``raptormq topic``: create, list, describe and delete topics."""

from __future__ import annotations

import sys

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.hints import CommandFailed
from raptormq.cli.options import key_and_value, name_servers_option, output_option, timeout_option
from raptormq.cli.output import print_json
from raptormq.cli.topic_description import as_json, print_description
from raptormq.client import AdminClient, ClusterInfo, MessageQueue, TopicConfig, TopicOffset
from raptormq.protocol.topic_names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

PERMISSIONS = {"rw": 6, "r": 4, "w": 2}


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
  raptormq topic create archive --read-queues 8 --write-queues 4 --perm r"""
)
@click.argument("name")
@click.option("--queues", type=click.IntRange(1, 65_536), default=8, show_default=True, help="Queues on each broker.")
@click.option("--read-queues", type=click.IntRange(1, 65_536), help="Queues that can be read, if not --queues.")
@click.option("--write-queues", type=click.IntRange(1, 65_536), help="Queues that can be written, if not --queues.")
@click.option("--perm", type=click.Choice(list(PERMISSIONS)), default="rw", show_default=True, help="What is allowed.")
@click.option(
    "--attribute",
    "attributes",
    type=key_and_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="Such as message.type=FIFO or queue.type=BatchCQ.",
)
@click.option("--order", is_flag=True, help="The topic is for ordered messages.")
@name_servers_option
@timeout_option
def create(
    name: str,
    queues: int,
    read_queues: int | None,
    write_queues: int | None,
    perm: str,
    attributes: tuple[tuple[str, str], ...],
    order: bool,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Create the topic NAME on all master brokers, or change it where it exists."""

    async def run(admin: AdminClient) -> None:
        await admin.create_topic(
            name,
            read_queues or queues,
            write_queues or queues,
            perm=PERMISSIONS[perm],
            attributes={key.removeprefix("+"): value for key, value in attributes},  # mqadmin writes +KEY=VALUE
            order=order,
        )

    with_admin(name_servers, timeout_s, run)
    click.echo(f"topic {name} is there")


@topic.command(
    name="list",
    epilog="""\b
Examples:
  raptormq topic list
  raptormq topic list --all -o json""",
)
@click.option("--all", "show_all", is_flag=True, help="Also retry, dead letter and system topics.")
@output_option
@name_servers_option
@timeout_option
def list_topics(show_all: bool, output: str, name_servers: str, timeout_s: float) -> None:
    """List the topics that the name servers know."""

    async def run(admin: AdminClient) -> tuple[list[str], ClusterInfo]:
        return await admin.topics(), await admin.cluster_info()

    names, info = with_admin(name_servers, timeout_s, run)
    internal = {*info.clusters, *info.brokers, *(f"{cluster}_REPLY_TOPIC" for cluster in info.clusters)}
    shown = [name for name in names if show_all or not (name in internal or _is_internal(name))]
    if output == "json":
        print_json(shown)
    else:
        for name in shown:
            click.echo(name)


@topic.command(
    epilog="""\b
Examples:
  raptormq topic describe orders
  raptormq topic describe orders -o json -n 'ns-0:9876;ns-1:9876'"""
)
@click.argument("name")
@output_option
@name_servers_option
@timeout_option
def describe(name: str, output: str, name_servers: str, timeout_s: float) -> None:
    """Show where NAME is, how it is configured and how full its queues are."""

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
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nobody is asked.")
@name_servers_option
@timeout_option
def delete(name: str, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Delete the topic NAME with all its messages, on all brokers."""

    async def exists(admin: AdminClient) -> bool:
        return await admin.route(name) is not None

    async def run(admin: AdminClient) -> None:
        await admin.delete_topic(name)

    if not with_admin(name_servers, timeout_s, exists):
        raise CommandFailed(f"topic {name} does not exist; 'raptormq topic list' shows the topics there are")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete topic {name} with all its messages?", abort=True, err=True)
    with_admin(name_servers, timeout_s, run)
    click.echo(f"topic {name} is deleted")


def _is_internal(name: str) -> bool:
    return is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX))
