"""Names of a package that are imported from its modules when they are first used (PEP 562).

A program that uses a few names of a large package then loads only their modules. Spark starts many short Python
processes, in each of which an import counts::

    if TYPE_CHECKING:
        from raptormq.client.admin import AdminClient, FoundMessages     # for type checkers and editors

    __getattr__ = lazy_names(__name__, {"raptormq.client.admin": "AdminClient FoundMessages"})

A test compares the imports with the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the function `__getattr__` of a package.

    Args:
        package: name of the package.
        names: names with spaces between them, by the module that has them.
    """
    home = {name: module for module, defined in names.items() for name in defined.split()}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)  # later uses do not call this function
        return value

    return get
