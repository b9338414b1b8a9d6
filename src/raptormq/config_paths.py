"""Paths in settings files: which path a value means, and which values are refused.

RocketMQ and published files write paths that a broker would otherwise use literally and silently, with an empty store
in a new folder: several paths separated by commas (``MessageStoreConfig.storePathCommitLog``), ``~/store``,
``${user.home}/store``, ``D:/store``, or a path with a comment behind it. Every setting that is a path is parsed by
:func:`file_path` or :func:`file_paths`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from raptormq.errors import ConfigError

_HOME = re.compile(r"(?:~|\$\{user\.home\})(?=/|$)")
_REFUSED = (
    (re.compile(r"[A-Za-z]:"), "a path of this system, which has no drive letters"),
    (re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:"), "a path, not a URL"),
    (re.compile(r".*\s#", re.DOTALL), "a path without a comment: comments are lines that begin with #"),
    (re.compile(r"[\"']"), "a path without quotation marks"),
    (re.compile(r"~"), "a path; only ~/ at its beginning is the home folder"),
    (
        re.compile(r".*(?:\$[A-Za-z{]|\{\{|<[^/]*>|%[A-Za-z_]+%)", re.DOTALL),
        "a path without variables; only ~ and ${user.home} at its beginning are replaced",
    ),
)


def home_path(*parts: str) -> str:
    """Return a path below the home folder of the user.

    Raises:
        ConfigError: the home folder is unknown.
    """
    try:
        return str(Path.home().joinpath(*parts))
    except RuntimeError:
        raise ConfigError("the home folder is unknown: set HOME, or set all paths in full") from None


def file_path(text: str) -> str:
    """Return the path that a setting means. ``~`` and ``${user.home}`` at its beginning are the home folder.

    A path from the root that exists is returned unchanged, whatever its characters are; only a folder with a comma in
    its name is refused, because earlier versions created such folders for lists of paths.

    Raises:
        ValueError: the value is empty, a list of paths, or another text that is not a path of this system.
        ConfigError: the value begins with the home folder, but the path that it literally names has contents, or the
            home folder is unknown.
    """
    if not text:
        raise ValueError("a path")
    home = _HOME.match(text)
    meant = home_path(text[home.end() :].lstrip("/")) if home else text
    if "," in meant and not os.path.isfile(meant):
        raise ValueError(
            "one path, because only one folder is used: stop the server, move the files of all folders into one (the"
            f" names of commit log files differ) and set its path{_existing(text)}"
        )
    if home and _has_contents(text):
        raise ConfigError(
            f"{text} means {meant}, but the path {os.path.abspath(text)} exists, which earlier versions used for it:"
            f" move its contents to {meant}, or set the path {os.path.abspath(text)}"
        )
    if os.path.isabs(meant) and os.path.exists(meant):
        return meant
    for pattern, expected in _REFUSED:
        if pattern.match(meant):
            raise ValueError(f"{expected}{_existing(text)}")
    if not meant.isprintable():
        raise ValueError("a path without control characters")
    return meant


def path_or_none(text: str) -> str:
    """Return the path that a setting means like :func:`file_path`, or an empty text unchanged."""
    return file_path(text) if text else text


def file_paths(text: str) -> str:
    """Return a list of paths separated by commas, each like :func:`file_path`."""
    return ",".join(file_path(path) for path in map(str.strip, text.split(",")) if path)


def _existing(text: str) -> str:
    """Return a hint to the literal path, which an earlier version may have used; empty if it has no contents."""
    return f" (earlier versions used {os.path.abspath(text)}, which exists)" if _has_contents(text) else ""


def _has_contents(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return os.path.exists(path)
