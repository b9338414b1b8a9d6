"""The commands: `python -m bench --help`."""

from __future__ import annotations

import click

from bench import client_load, client_load_table, output
from bench.client_load import Layout
from bench.peers import System
from tests.interop.rocketmq_java import BuildError, ProcessError

SYSTEMS = {"rocketmq": System.ROCKETMQ, "raptormq": System.RAPTORMQ}


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure RaptorMQ beside its peers; without a command: client-load."""
    if context.invoked_subcommand is None:
        context.invoke(client_load_command)


@main.command("client-load")
@click.option("--quick", is_flag=True, help="One short round: to see that it works.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--system", "names", type=click.Choice(list(SYSTEMS)), multiple=True, help="Only this one.")
@click.option("--layout", "layouts", type=click.Choice([*Layout]), multiple=True, help="Only this use of the CPUs.")
@click.option("--nice", "niceness", type=click.IntRange(0, 19), default=0, help="Be nice to other users.")
def client_load_command(
    quick: bool = False,
    rounds: int = 3,
    names: tuple[str, ...] = (),
    layouts: tuple[str, ...] = (),
    niceness: int = 0,
) -> None:
    """The official Java client on Apache RocketMQ 5.3.3 and on RaptorMQ."""
    plan, count = (client_load.QUICK, 1) if quick else (client_load.FULL, rounds)
    systems = [SYSTEMS[name] for name in names] or list(System)
    measured = client_load.measure(plan, count, systems, [Layout(name) for name in layouts] or list(Layout), niceness)
    name = "client_load_quick" if quick else "client_load"
    output.save(name, client_load_table.table(measured), client_load_table.values(measured))


if __name__ == "__main__":
    try:
        main()
    except (BuildError, ProcessError) as error:
        raise SystemExit(str(error)) from error
