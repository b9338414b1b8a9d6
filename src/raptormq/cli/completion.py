"""``raptormq completion``: prints the completion script of a shell."""

from __future__ import annotations

import click

COMPLETION_VARIABLE = "_RAPTORMQ_COMPLETE"
"""Environment variable with which the script asks ``raptormq`` for completions."""
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="""\b
Examples:
  raptormq completion bash > ~/.local/share/bash-completion/completions/raptormq
  raptormq completion zsh > ~/.zfunc/_raptormq
  raptormq completion fish > ~/.config/fish/completions/raptormq.fish"""
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish.

    The script completes commands, options, and the names of topics and groups, for which it asks the name servers.
    For the running shell only: source <(raptormq completion bash).
    """
    from click.shell_completion import get_completion_class  # slow to import for every command

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.get_current_context().find_root().command, {}, "raptormq", COMPLETION_VARIABLE).source())
