r"""Log lines and terminal output that a peer cannot forge.

Names, addresses, client ids and remarks come from peers and may contain any characters. A line feed could forge a log
record, and an escape sequence could control the terminal of the reader (CWE-117, CWE-150). :func:`printable` replaces
such characters by Python's escapes: a line feed by ``\n``, an escape character by ``\x1b``.

All loggers of the project are created by :func:`get_logger`, whose filter escapes the complete text of each record, so
callers do not have to. :func:`configure_logging`, which all programs call, also adds the filter to the handler, which
covers the loggers of libraries.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from traceback import TracebackException
from typing import Literal
from unicodedata import category

MAX_CHARACTERS = 8192
"""Maximum characters of a record. A longer text is truncated, with the number of removed characters at its end."""

_TRACEBACK_MARGIN = "  | "


def printable(text: str) -> str:
    """Escape all characters of ``text`` that end a line, control a terminal, change the writing direction or cannot be
    encoded.

    Tabs and the visible characters of all scripts are unchanged.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or _is_blank(each) else _escape(each) for each in text)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module (``get_logger(__name__)``), which escapes its records."""
    logger = logging.getLogger(name)  # noqa: TID251 - the one place
    logger.addFilter(PEER_TEXT)
    return logger


LogFormat = Literal["text", "json"]


def configure_logging(level: str, form: LogFormat = "text") -> None:
    """Log to standard error, one line per record. In the text format, traceback lines follow with a margin."""
    handler = logging.StreamHandler()
    handler.addFilter(PEER_TEXT)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(text if form == "text" else _JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time (RFC 3339, UTC), level, logger, message, `error` with the traceback, and
    the fields of `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_text:
            fields["error"] = record.exc_text
        return json.dumps(fields, ensure_ascii=False, default=str)


class _PeerTextFilter(logging.Filter):
    """Escapes the text of records. A record without characters to escape, the usual case, keeps its template and
    arguments.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        safe = _bounded(printable(text))
        if safe != text:
            record.msg, record.args = safe, ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = _printable_traceback(record.exc_info[1])
        return True


PEER_TEXT = _PeerTextFilter()


def _is_blank(character: str) -> bool:
    """Return whether the character is a blank. Python does not count all blanks as printable, but they are harmless."""
    return character == "\t" or category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _bounded(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}… ({len(text) - MAX_CHARACTERS} more characters)"


def _printable_traceback(error: BaseException) -> str:
    """Return the traceback with a margin. The text of an exception may contain line feeds, and no line may look like a
    record.
    """
    lines = "".join(TracebackException(type(error), error, error.__traceback__).format()).split("\n")
    return "\n".join(_TRACEBACK_MARGIN + _bounded(printable(line)) for line in lines if line)
