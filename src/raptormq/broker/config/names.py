"""Hosts, addresses and names in the settings: values that routes could not contain are refused.

Placeholders of published files (``brokerIP1=your_ip``) and comments behind a value would otherwise be registered with
the name servers, and no client could connect. Stores of earlier versions keep a name that is refused for new ones
(:func:`refused_names`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from raptormq.errors import ConfigError
from raptormq.transport.pool import parse_address

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_PLACEHOLDER = re.compile(
    r"(?i)(?:[x*]+\.)+[x*]+|(?:[0-9]+\.)+[x*]+(?:\.[x*]+)*"
    r"|(?:your|my)?[-_]*(?:public|private|internal|external|local|host|broker|server|machine)?[-_]*ip[-_]*(?:address|here)?"
)
_HOST_EXPECTED = "a host name or an IP address, without port, comment or placeholder"
_NAME_SERVERS_EXPECTED = "host:port, or several separated by ; such as 10.0.0.7:9876;10.0.0.8:9876"
_NOT_IN_NAMES = re.compile(r"[\s|;,/\\#\"'<>${}]|[^\x20-\x7e\x80-\U0010ffff]")


def host(text: str) -> str:
    """Return a host name or an IP address, without the brackets of an IPv6 address. A parser of a setting.

    Raises:
        ValueError: the text is neither.
    """
    bare = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    numeric = bare.rstrip(".").rpartition(".")[2].isdecimal()
    if numeric or not _HOST.fullmatch(bare) or _PLACEHOLDER.fullmatch(bare):
        raise ValueError(_HOST_EXPECTED)
    return bare


def address(text: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[IPv6 address]:port``.

    Raises:
        ConfigError: the text has another form, or the host is invalid.
    """
    name, port = parse_address(text)
    try:
        return host(name), port
    except ValueError:
        raise ConfigError(f"{text!r} is not an address of the form host:port") from None


def name_servers(text: str) -> str:
    """Return the list of name servers unchanged. A parser of a setting.

    Raises:
        ValueError: an entry is not ``host:port``.
    """
    for entry in filter(None, map(str.strip, text.split(";"))):
        try:
            address(entry)
        except ConfigError:
            reason = ", not by commas" if "," in entry else ", without http://" if "://" in entry else ""
            raise ValueError(f"{_NAME_SERVERS_EXPECTED}{reason}") from None
    return text


def refused_names(names: Mapping[str, str]) -> list[str]:
    """Return a complaint for each setting of ``names`` whose value cannot be the name of a new broker, cluster or
    group.
    """
    return [
        f"setting {key} = {name!r} is not usable as a name: expected no blanks, control characters, comments, quotation"
        " marks, or any of | ; , / \\ < > $ { }, which separate names in clients and tools"
        for key, name in names.items()
        if not name or _NOT_IN_NAMES.search(name)
    ]
