"""Writes helm/raptormq/README.md: every value with its default and the comment above it in values.yaml.

    python scripts/chart_readme.py

A test compares the file with what this makes (tests/chart/test_readme.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

CHART = Path(__file__).resolve().parents[1] / "helm" / "raptormq"
README = CHART / "README.md"
HEAD = """# The chart of the RaptorMQ operator

It installs the definitions of `BrokerCluster` and `Topic` and one Deployment. `CHART` is its folder or its package.

```sh
helm install raptormq CHART --namespace raptormq --create-namespace
helm test raptormq --namespace raptormq
```

Helm neither changes nor removes definitions, so an upgrade has two commands. The first one takes over the fields that
Helm wrote when it installed the definitions:

```sh
helm show crds CHART | kubectl apply --server-side --force-conflicts -f -
helm upgrade raptormq CHART --namespace raptormq --reset-then-reuse-values
```

## Values

This table is made of values.yaml. values.schema.json refuses a value that is unknown, of the wrong kind or, where it
is about security, without effect.

| value | default | meaning |
|---|---|---|
"""


class Value(NamedTuple):
    """A value of the chart: its name with points, its default as YAML in one line, and its comment."""

    name: str
    default: str
    comment: str


def values(text: str) -> list[Value]:
    """All values that stand alone, in the order of the file. A map without comments within is one value.

    Raises:
        ValueError: a key has no comment.
    """
    tree = yaml.compose(text)
    assert isinstance(tree, yaml.MappingNode)
    return list(_values(tree, text.splitlines(), ""))


def _values(tree: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[Value]:
    for key, node in tree.value:
        name = f"{prefix}{key.value}"
        comment = _comment(lines, key.start_mark.line)
        if not comment:
            raise ValueError(f"values.yaml: {name} has no comment")
        if isinstance(node, yaml.MappingNode) and node.value and _comment(lines, node.value[0][0].start_mark.line):
            yield Value(f"{name}.*", "", comment)
            yield from _values(node, lines, f"{name}.")
        else:
            default = yaml.safe_load(yaml.serialize(node))
            yield Value(name, yaml.safe_dump(default, default_flow_style=True, width=1000).split("\n")[0], comment)


def _comment(lines: list[str], line: int) -> str:
    """The comment lines right above one."""
    found: list[str] = []
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip()[1:].strip())
    return " ".join(found)


def readme() -> str:
    """The whole file."""
    rows = [
        f"| `{value.name}` | {f'`{value.default}`' if value.default else ''} | {value.comment} |\n"
        for value in values((CHART / "values.yaml").read_text(encoding="utf-8"))
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
