"""Entry point of ``raptormq``. Runs the command and reports expected errors as one line on standard error.

The exit codes are in :mod:`~raptormq.cli.exit_codes`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from raptormq.cli.completion import COMPLETION_VARIABLE
from raptormq.cli.exit_codes import ExitCode, exit_code
from raptormq.cli.lazy_group import LazyGroup
from raptormq.errors import RaptorMQError
from raptormq.logs import printable

cli = LazyGroup(
    name="raptormq",
    summary="RaptorMQ: a RocketMQ-compatible message broker. Use --help with a command for details.",
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
        "message": ("raptormq.cli.message:message", "Find and show messages by key or id."),
        "topic": ("raptormq.cli.topic:topic", "Create, list, describe and delete topics."),
        "group": ("raptormq.cli.group:group", "Create, list, describe, reset and delete consumer groups."),
        "dlq": ("raptormq.cli.dlq:dlq", "List, show and resend dead letters."),
        "convert-queue": ("raptormq.cli.convert_queue:convert_queue", "Convert queues to BatchCQ or SimpleCQ."),
        "plan-capacity": ("raptormq.cli.plan_capacity:plan_capacity", "Plan the brokers for a load."),
        "cluster": (
            "raptormq.cli.cluster:cluster",
            "Describe brokers and their members; move leadership; change settings.",
        ),
        "user": ("raptormq.cli.user:user", "List, create, change and delete users."),
        "acl": ("raptormq.cli.acl:acl", "List, create, change and delete permissions of users."),
        "completion": ("raptormq.cli.completion:completion", "Print the completion script of a shell."),
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
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete  # slow to import for every command

        return shell_complete(cli, {}, "raptormq", COMPLETION_VARIABLE, instruction)
    try:
        with cli.make_context("raptormq", given) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.FAILED
    except click.UsageError as error:
        return _report_error(_usage_text(error))
    except click.ClickException as error:
        return _report_error(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return ExitCode.BROKEN_PIPE
    except (RaptorMQError, OSError) as error:
        _report_error(str(error))
        return exit_code(error)
    return ExitCode.SUCCESS


def _usage_text(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "raptormq"
    return f"{error.format_message().rstrip('.')}; see {path} --help"


def _report_error(text: str) -> ExitCode:
    click.echo(f"raptormq: {printable(' '.join(text.split()))}", err=True)
    return ExitCode.FAILED


def _abandon_stdout() -> None:
    """Redirect standard output to /dev/null, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
