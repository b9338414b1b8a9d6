"""Language codes of the header (Apache RocketMQ ``LanguageCode``): a number in binary headers, a name in JSON."""

from __future__ import annotations

from enum import IntEnum


class Language(IntEnum):
    """Programming language of the peer. Brokers use it in statistics and to find out what a client supports."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


BY_NAME = {language.name: language for language in Language}
BY_CODE = {int(language): language for language in Language}
