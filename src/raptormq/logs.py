r"""Log lines and terminal output that a peer cannot forge.

Names, addresses, client ids and remarks come from peers, who may put anything into them. A line feed in one would end
the line of the log and begin another that looks like ours; an escape sequence would repaint the terminal of whoever
reads it (CWE-117, CWE-150). :func:`printable` writes such characters as Python's escapes: a line feed becomes ``\n``,
an escape character ``\x1b``.

Every logger of the project comes from :func:`get_logger`, whose filter does that to the whole text of a record, so
that no call has to remember it. :func:`configure_logging`, by which our programs open the log, gives the filter to the
handler too, which covers the loggers of libraries.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from traceback import TracebackException
from typing import Literal
from unicodedata import category

MAX_CHARACTERS = 8192
"""The longest text of one record; what is behind it is left out, and the record says how much that was."""

_TRACEBACK_MARGIN = "  | "


def printable(text: str) -> str:
    """Return ``text`` with all characters escaped that end a line, steer a terminal, change the direction of writing
    or cannot be encoded.

    Tabs stay, and so does every visible character of any script.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or _is_blank(each) else _escape(each) for each in text)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module (``get_logger(__name__)``), whose records are printable."""
    logger = logging.getLogger(name)  # noqa: TID251 - the one place
    logger.addFilter(PEER_TEXT)
    return logger


LogFormat = Literal["text", "json"]


def configure_logging(level: str, form: LogFormat = "text") -> None:
    """Send the log of this process to standard error, one line for each record (a traceback has a margin in text)."""
    handler = logging.StreamHandler()
    handler.addFilter(PEER_TEXT)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(text if form == "text" else _JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    """One JSON object for each record: time (RFC 3339, UTC), level, logger, message, `error` with the traceback, and
    what a call has given as `extra={"fields": {...}}`."""

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
    """Makes records printable; one that is printable already, as nearly all are, keeps its template and arguments."""

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
    """Of the characters that Python calls not printable, blanks of all scripts do no harm."""
    return character == "\t" or category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _bounded(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}… ({len(text) - MAX_CHARACTERS} more characters)"


def _printable_traceback(error: BaseException) -> str:
    """Return the traceback with a margin: the text of an exception may have line feeds, too, and no line of it may look
    like a record of its own.
    """
    lines = "".join(TracebackException(type(error), error, error.__traceback__).format()).split("\n")
    return "\n".join(_TRACEBACK_MARGIN + _bounded(printable(line)) for line in lines if line)
