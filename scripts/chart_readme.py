"""Generates helm/raptormq/README.md, with the default and the comment of every value in values.yaml.

    python scripts/chart_readme.py

tests/chart/test_readme.py checks that the file is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

CHART = Path(__file__).resolve().parents[1] / "helm" / "raptormq"
README = CHART / "README.md"
HEAD = """# Helm chart of the RaptorMQ operator

The chart installs the CustomResourceDefinitions `BrokerCluster`, `Topic` and `SparkPipeline` and the operator's
Deployment. In the commands, `CHART` is the folder or the package of the chart.

```sh
helm install raptormq CHART --namespace raptormq --create-namespace
helm test raptormq --namespace raptormq
```

Helm does not update CustomResourceDefinitions, so an upgrade takes two commands. The first command needs
`--force-conflicts`, because Helm owns the fields of the definitions that it installed:

```sh
helm show crds CHART | kubectl apply --server-side --force-conflicts -f -
helm upgrade raptormq CHART --namespace raptormq --reset-then-reuse-values
```

## Values

This table is generated from values.yaml. values.schema.json rejects unknown values, values of a wrong type, and
security settings that would have no effect.

| value | default | meaning |
|---|---|---|
"""


class Value(NamedTuple):
    """A value of the chart: its dotted name, its default as one line of YAML, and its comment."""

    name: str
    default: str
    comment: str


def values(text: str) -> list[Value]:
    """Return all values in file order. A map whose entries have no comments is one value.

    Raises:
        ValueError: A key has no comment.
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
    """Return the comment immediately above a line."""
    found: list[str] = []
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip()[1:].strip())
    return " ".join(found)


def readme() -> str:
    """Return the contents of README.md."""
    rows = [
        f"| `{value.name}` | {f'`{value.default}`' if value.default else ''} | {value.comment} |\n"
        for value in values((CHART / "values.yaml").read_text(encoding="utf-8"))
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
