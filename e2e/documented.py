"""Executes the commands of the tutorials and guides that need Kubernetes, as they stand there.

Steps of the run use them instead of commands of their own. tests/documentation compares the marks of the pages with the
calls of `execute`, so that every such block is executed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from tests.documentation.blocks import ROOT, Block, blocks_of

TIMEOUT_S = 300.0
AS_IT_STANDS: Mapping[str, str] = {}


def execute(
    kubernetes: Kubernetes, page: str, section: str, adapted: Mapping[str, str] = AS_IT_STANDS, *, namespace: str
) -> str:
    """Execute the command block of a section in the checkout. Return its output.

    Args:
        kubernetes: the cluster.
        page: name of the file, relative to the checkout.
        section: title of the section.
        adapted: texts of the block that a reader replaces, such as the name of a cluster.
        namespace: namespace of the commands that name none.

    Raises:
        Failed: There is no such block, or its output begins with other columns than on the page.
        Unanswered: A command failed.
    """
    block = block_of(page, section)
    commands = block.commands
    for old, new in adapted.items():
        if old not in commands:
            raise Failed(f"{block.place}: the commands have no {old}")
        commands = commands.replace(old, new)
    for line in commands.splitlines():
        say(f"  {block.place}: {line}")
    text = kubernetes.shell(f"cd {shlex.quote(str(ROOT))}\n{commands}", namespace=namespace, timeout=TIMEOUT_S)
    if block.output and block.output[0].split() != text.partition("\n")[0].split():
        raise Failed(f"{block.place}: the output begins with {text[:200]!r}, expected {block.output[0]!r}")
    return text


def block_of(page: str, section: str) -> Block:
    """Return the block of a section that e2e executes; raises Failed unless there is exactly one."""
    found = [block for block in blocks_of(page) if block.in_e2e and block.section == section]
    if len(found) != 1:
        raise Failed(f"{page} has {len(found)} blocks for e2e in {section}")
    return found[0]
