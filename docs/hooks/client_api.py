"""The reference of `raptormq.client` and `raptormq.errors`, from signatures and docstrings. Used by `reference`."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import raptormq.client
import raptormq.errors

_SETTINGS = {"ClientConfig": "clientconfig", "ProducerConfig": "producerconfig", "ConsumerConfig": "consumerconfig"}
"""Classes whose fields have a page of their own, and the headings there."""
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Attributes):$", re.MULTILINE)
_COROUTINE = re.compile(r"^Coroutine\[Any, Any, (.*)\]$")
_MODULES = re.compile(r"(?:[a-z_]+\.)+(?=[A-Z])")
_ONE_LINE = 110
"""Longest signature that is written in one line."""


class _Annotation(str):
    """An annotation that `inspect` writes without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def client_api() -> str:
    """Return the reference of the public names as Markdown, in sections by kind."""
    names = {name: getattr(raptormq.client, name) for name in sorted(raptormq.client.__all__, key=_place)}
    classes = {name: each for name, each in names.items() if inspect.isclass(each)}
    clients = {name: each for name, each in classes.items() if hasattr(each, "start")}
    enums = {name: each for name, each in classes.items() if issubclass(each, enum.Enum)}
    errors = {name: each for name, each in vars(raptormq.errors).items() if _is_error(each)}
    sections: dict[str, dict[str, Any]] = {
        "Producers": {name: each for name, each in clients.items() if name.endswith("Producer")},
        "Consumers": {name: each for name, each in clients.items() if name.endswith("Consumer")},
        "Administration": {name: each for name, each in clients.items() if name.endswith("Client")},
        "Functions": {name: each for name, each in names.items() if inspect.isfunction(each)},
        "Callables of the application": {
            name: each for name, each in names.items() if name not in classes and not inspect.isfunction(each)
        },
        "Other classes": {
            name: each for name, each in classes.items() if name not in clients and not issubclass(each, enum.Enum)
        },
        "Enumerations": enums,
        "Errors": errors,
    }
    return "\n\n".join(part for title, members in sections.items() for part in _section(title, members))


def _place(name: str) -> tuple[bool, str]:
    """Return the sort key of a name; the classes without asyncio follow the others."""
    return name.startswith("Blocking"), name


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == raptormq.errors.__name__


def _section(title: str, members: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    for name, value in members.items():
        yield f"### {name}"
        if inspect.isfunction(value):
            yield _code(_signature(name, value))
            yield documented(value)
        elif inspect.isclass(value):
            yield from _class(name, value)
        else:
            yield _code(f"{name} = {_MODULES.sub('', str(value))}")


def _class(name: str, cls: type[Any]) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if _is_listed(base)]
    if bases:
        yield f"A `{bases[0]}`."
    if not issubclass(cls, enum.Enum | Exception):
        yield _code(_signature(name, cls))
    yield documented(cls)
    if name in _SETTINGS:
        yield f"The fields are [settings](client-settings.md#{_SETTINGS[name]})."
    else:
        yield from _fields(cls)
    if issubclass(cls, enum.Enum):
        return
    for method, function in _methods(cls):
        yield f"#### {name}.{method}"
        if isinstance(function, property):
            yield _code(f"{method}: {function.fget.__annotations__.get('return')}")
        else:
            yield _code(_signature(method, function, is_blocking=name.startswith("Blocking")))
        yield documented(function)


def _is_listed(cls: type[Any]) -> bool:
    return getattr(raptormq.client, cls.__name__, None) is cls or _is_error(cls)


def _own_bases(cls: type[Any]) -> list[type[Any]]:
    """Return the class and its bases in this project, without those that the page describes elsewhere."""
    elsewhere = {inherited for base in cls.__mro__[1:] if _is_listed(base) for inherited in base.__mro__}
    return [base for base in cls.__mro__ if base.__module__.startswith("raptormq.") and base not in elsewhere]


def _fields(cls: type[Any]) -> Iterator[str]:
    """List the documented fields of a class; the others are in its signature."""
    fields = {name: entry for base in reversed(_own_bases(cls)) for name, entry in _documented_fields(base).items()}
    lines = [
        f"- `{shown}`" + (f": {_inline(text)}" if text else "")
        for shown, text in fields.values()
        if text or issubclass(cls, enum.Enum)
    ]
    if lines:
        yield "\n".join(lines)


def _documented_fields(cls: type[Any]) -> dict[str, tuple[str, str]]:
    """Return the public fields of a class by name, as they are declared and with their docstrings."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, shown = node.target.id, f"{node.target.id}: {ast.unparse(node.annotation)}"
        elif isinstance(node, ast.Assign) and issubclass(cls, enum.Enum) and isinstance(node.targets[0], ast.Name):
            name = shown = node.targets[0].id
        else:
            continue
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if not name.startswith("_"):
            found[name] = shown, str(following.value.value) if is_text else ""  # type: ignore[union-attr]
    return found


def _methods(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class."""
    seen: dict[str, Any] = {}
    for base in _own_bases(cls):
        for name, value in vars(base).items():
            if not name.startswith("_"):
                seen.setdefault(name, value)
    for name, value in seen.items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(function, property) or inspect.isfunction(function):
            yield name, function


def _signature(name: str, function: Any, *, is_blocking: bool = False) -> str:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return name
    parameters = [
        parameter.replace(annotation=_annotation(parameter.annotation)) for parameter in signature.parameters.values()
    ]
    if parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    result = signature.return_annotation
    coroutine = _COROUTINE.match(result) if isinstance(result, str) else None
    if inspect.isclass(function):
        prefix, result = "class ", inspect.Signature.empty
    else:
        is_async = inspect.iscoroutinefunction(function) or coroutine is not None
        prefix, result = "async " if is_async and not is_blocking else "", coroutine[1] if coroutine else result
    whole = signature.replace(parameters=parameters, return_annotation=_annotation(result))
    line = f"{prefix}{name}{whole}"
    if len(line) <= _ONE_LINE:
        return line
    rows = "".join(f"    {part},\n" for part in _parts(whole))
    returned = "" if result is inspect.Signature.empty else f" -> {result}"
    return f"{prefix}{name}(\n{rows}){returned}"


def _parts(signature: inspect.Signature) -> Iterator[str]:
    """Yield the parameters as they are written, with the star that keyword parameters follow."""
    is_star_due = True
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            is_star_due = False
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and is_star_due:
            is_star_due = False
            yield "*"
        yield str(parameter)


def _annotation(value: Any) -> Any:
    text = getattr(value, "__forward_arg__", value)  # the fields of a NamedTuple have references
    return _Annotation(text) if isinstance(text, str) else value


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def documented(value: object) -> str:
    """Return a docstring as Markdown: sections such as `Raises:` become lists."""
    text = _ROLE.sub(r"`\1`", inspect.getdoc(value) or "").replace("``", "`")
    first, *rest = _SECTION.split(text)
    parts = [first.strip()]
    for title, content in zip(rest[::2], rest[1::2], strict=True):
        listed, _, after = textwrap.dedent(content.strip("\n")).partition("\n\n")
        parts += [f"{title}:", "\n".join(_items(listed)), after]
    return "\n\n".join(part for part in parts if part)


def _items(text: str) -> Iterator[str]:
    """Turn the entries `name: text` of a section, with indented continuation lines, into a list."""
    for entry in re.split(r"\n(?=\S)", text):
        name, colon, rest = entry.partition(":")
        yield f"- `{name}`: {_inline(rest)}" if colon else f"- {_inline(entry)}"


def _inline(text: str) -> str:
    return _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")
