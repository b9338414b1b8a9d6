"""mkdocs hook that generates parts of the reference from the sources.

The comment ``<!-- generated: NAME -->`` on a separate line of a page is replaced with the part NAME of `PARTS`.
Links to files outside of docs/ are rewritten to the repository's site.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import enum
import inspect
import posixpath
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints
from urllib.request import urlopen

import click
import yaml
from client_api import client_api
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from raptormq.broker.broker import Broker
from raptormq.broker.config import BrokerConfig
from raptormq.cli.main import cli
from raptormq.client import ClientConfig, ConsumerConfig, ProducerConfig
from raptormq.client.metrics import ClientMetrics
from raptormq.config_file import Clamp, Number, dump_settings
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer

ROOT = Path(__file__).resolve().parents[2]
_MARKER = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[\w-]*)?\)")
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert generated parts and rewrite links to the repository (called by mkdocs).

    Raises:
        KeyError: A page names an unknown part.
    """
    text = _MARKER.sub(lambda found: PARTS[found[1]](), markdown)
    return _LINK.sub(lambda found: f"]({_address(found[1], page, config)}{found[2] or ''})", text)


def _address(target: str, page: Page, config: MkDocsConfig) -> str:
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), target))
    if "://" in target or path.startswith("docs/"):
        return target
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"{page.file.src_uri} links to {target}, which does not exist")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{str(config.repo_url).rstrip('/')}/{kind}/main/{path}"


# --- settings ---------------------------------------------------------------------------------------------------------


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields of a class, from the source, because Python does not keep them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(following, ast.Expr):
            found[node.target.id] = ast.literal_eval(following.value)
    return found


def _plain(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    return _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`").replace("|", "\\|")


def _settings(cls: type[Any]) -> str:
    return "\n".join(_group(cls, dump_settings(cls())))


def _group(cls: type[Any], defaults: dict[str, str]) -> Iterator[str]:
    hints = get_type_hints(cls)
    docs = {name: text for base in reversed(cls.__mro__[:-1]) for name, text in _field_docs(base).items()}
    rows, groups = [], []
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            groups.append(hints[field.name])
        elif "keys" in field.metadata:
            first, *aliases = field.metadata["keys"]
            default = "" if field.default is dataclasses.MISSING else defaults.get(first, "")
            also = "".join(f", `{alias}`" for alias in aliases)
            in_force = "at once" if field.metadata["live"] else "start"
            shown = f"`{default}`" if default else ""
            what = _plain(docs.get(field.name, ""))
            rows.append(f"| `{first}`{also} | {shown} | {_values(field.metadata['parse'])} | {in_force} | {what} |")
    if rows:
        yield f"### {cls.__name__}\n\n{_plain((cls.__doc__ or '').splitlines()[0])}\n"
        yield "| key | default | values | in force | what it is |\n|---|---|---|---|---|"
        yield "\n".join(rows) + "\n"
    for group in groups:
        yield from _group(group, defaults)


def _values(parse: object) -> str:
    """Return the range of a setting; empty for settings that are not numbers."""
    if isinstance(parse, Clamp):
        return f"{parse.minimum} to {parse.maximum} or nearest"
    return f"{parse.minimum} to {parse.maximum}" if isinstance(parse, Number) else ""


def _client_settings(cls: type[Any]) -> str:
    """Return the fields of a configuration of the Python client."""
    docs, rows = _field_docs(cls), []
    for field in dataclasses.fields(cls):
        default = f"`{_literal(field.default)}`" if field.default is not dataclasses.MISSING else ""
        rows.append(f"| `{field.name}` | {default} | {_plain(docs[field.name])} |")
    return "| setting | default | what it is |\n|---|---|---|\n" + "\n".join(rows)


def _literal(value: object) -> str:
    """Return a default as it is written in a program."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return str(value) if isinstance(value, enum.Enum) else repr(value)


# --- metrics ----------------------------------------------------------------------------------------------------------


@cache
def _scrapes() -> tuple[str, str]:
    """Return the metrics of a broker and a name server, which are started for this."""
    return asyncio.run(_scrape())


async def _scrape() -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="raptormq-docs-") as folder:
        local = {"bindAddress": "127.0.0.1", "listenPort": "0", "metricsHost": "127.0.0.1", "metricsPort": "0"}
        broker = Broker(BrokerConfig.from_pairs(local | {"storePathRootDir": folder, "mappedFileSizeCommitLog": "1M"}))
        server = NameServer(NameServerConfig.from_pairs(local | {"kvConfigPath": f"{folder}/kv.json"}))
        await broker.start()
        await server.start()
        try:
            addresses = f"127.0.0.1:{broker.metrics_port}", str(server.metrics_address)
            of_broker, of_server = [await asyncio.to_thread(_get, address) for address in addresses]
        finally:
            await broker.stop()
            await server.stop()
    return of_broker, of_server


def _get(address: str) -> str:
    with urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


def _metrics(text: str) -> str:
    rows = [
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} | {family.documentation} |"
        for family in sorted(text_string_to_metric_families(text), key=lambda family: family.name)
    ]
    return "| name | type | what it is |\n|---|---|---|\n" + "\n".join(rows)


def _client_metrics() -> str:
    registry = CollectorRegistry()
    ClientMetrics(registry)
    return _metrics(generate_latest(registry).decode())


def _operator_metrics() -> str:
    import raptormq_operator.metrics  # noqa: F401  (declares them)

    rows = [
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} | {family.documentation} |"
        for family in sorted(REGISTRY.collect(), key=lambda family: family.name)
        if family.name.startswith("raptormq_operator")
    ]
    return "| name | type | what it is |\n|---|---|---|\n" + "\n".join(rows)


# --- command line -----------------------------------------------------------------------------------------------------


def _commands() -> str:
    return "\n".join(_help(cli, "raptormq", None, 2))


def _help(command: click.Command, path: str, parent: click.Context | None, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, terminal_width=100)
    yield f"{'#' * level} {path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _help(below, f"{path} {name}", context, min(level + 1, 3))


# --- resources --------------------------------------------------------------------------------------------------------


def _resource(name: str) -> str:
    (version,) = yaml.safe_load((ROOT / "crds" / name).read_text(encoding="utf-8"))["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    parts = []
    for part in ("spec", "status"):
        parts.append(f"### {part}\n\n| field | type | default | what it is |\n|---|---|---|---|")
        parts += list(_fields(fields[part], part))
        parts.append("")
    return "\n".join(parts)


def _fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        place = f"{path}.{name}"
        shown = f"`{_flow(field['default'])}`" if "default" in field else "required" if name in required else ""
        description = _plain(field.get("description", ""))
        limits = [f"{words} {field[key]}" for key, words in _LIMITS.items() if key in field and field[key] != ""]
        yield f"| `{place}` | {_type(field)} | {shown} | {'. '.join([description.rstrip('.'), *limits])} |"
        yield from _fields(field, place)
        if "items" in field:
            yield from _fields(field["items"], f"{place}[]")


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1_000).removesuffix("...\n").strip()


_LIMITS = {"minimum": "At least", "maximum": "At most", "maxItems": "Entries at most"}


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "object"))


# --- decisions --------------------------------------------------------------------------------------------------------


def _decisions() -> str:
    """Return a list of links to the pages of docs/adr."""
    pages = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    return "\n".join(f"- [{page.read_text(encoding='utf-8').splitlines()[0][2:]}]({page.name})" for page in pages)


PARTS: dict[str, Callable[[], str]] = {
    "broker-settings": lambda: _settings(BrokerConfig),
    "name-server-settings": lambda: _settings(NameServerConfig),
    "client-api": client_api,
    "client-config": lambda: _client_settings(ClientConfig),
    "producer-config": lambda: _client_settings(ProducerConfig),
    "consumer-config": lambda: _client_settings(ConsumerConfig),
    "broker-metrics": lambda: _metrics(_scrapes()[0]),
    "name-server-metrics": lambda: _metrics(_scrapes()[1]),
    "client-metrics": _client_metrics,
    "operator-metrics": _operator_metrics,
    "commands": _commands,
    "brokercluster": lambda: _resource("brokerclusters.yaml"),
    "topic": lambda: _resource("topics.yaml"),
    "sparkpipeline": lambda: _resource("sparkpipelines.yaml"),
    "decisions": _decisions,
}
