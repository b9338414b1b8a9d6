"""Entry point of ``raptormq``: selects the command and reports every expected error as one line.

Exit codes: 0 success; 2 an error that the user can fix (``raptormq: <error>`` on stderr); 130 interrupted; 141 the
reader of the output closed the pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from raptormq.cli.lazy_group import LazyGroup
from raptormq.errors import RaptorMQError
from raptormq.logs import printable

EXIT_FAILURE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

cli = LazyGroup(
    name="raptormq",
    summary="RaptorMQ: a RocketMQ-compatible message system. Every command explains itself with --help.",
    epilog="""\b
Examples:
  raptormq dev --data-dir /tmp/raptormq
  seq 1000 | raptormq produce numbers
  raptormq consume numbers --max 5
  raptormq cluster describe""",
    commands={
        "dev": ("raptormq.cli.dev:dev", "Run a name server and a broker in one process."),
        "namesrv": ("raptormq.cli.namesrv:namesrv", "Run a name server."),
        "broker": ("raptormq.cli.broker:broker", "Run a broker."),
        "produce": ("raptormq.cli.produce:produce", "Send the lines of a file or of stdin."),
        "consume": ("raptormq.cli.consume:consume", "Print the messages of a topic."),
        "message": ("raptormq.cli.message:message", "Find messages by key or id, and show them."),
        "topic": ("raptormq.cli.topic:topic", "Create, list, describe and delete topics."),
        "group": ("raptormq.cli.group:group", "Show consumer groups, their members and their lag; reset a group."),
        "convert-queue": ("raptormq.cli.convert_queue:convert_queue", "Convert queues to BatchCQ, or back."),
        "plan-capacity": ("raptormq.cli.plan_capacity:plan_capacity", "Plan the brokers for a load."),
        "cluster": ("raptormq.cli.cluster:cluster", "Describe the brokers of a cluster."),
    },
    entry_points="raptormq.commands",
)

click.version_option(package_name="raptormq", message="%(prog)s %(version)s")(cli)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (``sys.argv`` by default) and exit the process."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with cli.make_context("raptormq", given) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_FAILURE
    except click.UsageError as error:
        return _complain(_usage_text(error))
    except click.ClickException as error:
        return _complain(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except (RaptorMQError, OSError) as error:
        return _complain(str(error))
    return 0


def _usage_text(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "raptormq"
    return f"{error.format_message().rstrip('.')}; see {path} --help"


def _complain(text: str) -> int:
    click.echo(f"raptormq: {printable(' '.join(text.split()))}", err=True)
    return EXIT_FAILURE


def _abandon_stdout() -> None:
    """Redirect standard output to /dev/null, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
