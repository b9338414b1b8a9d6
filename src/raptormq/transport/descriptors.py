"""The descriptors that a process may have (``ulimit -n``), and how those who want many of them share them.

:func:`descriptor_limit` asks the system for their number (RLIMIT_NOFILE), and :func:`raise_descriptor_limit` takes all
that it allows. :func:`share` divides them, and is pure::

    limit = connections + queue_files + log_files + reserve

    reserve       an eighth of the limit with log_files, 64 to 1,024: listeners, probes and scrapes, files that are open
                  for a moment, index files, connections of the process's own
    log_files     a quarter of that: segments of the log that are open to be read
    connections   two thirds of the rest, and what queue_files do not want
    queue_files   a third of the rest, and what connections do not want

Who would need one more than its share closes one of its own (files), or refuses the newcomer (connections), and takes
none from the others.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

from raptormq.errors import ConfigError
from raptormq.logs import get_logger

logger = get_logger(__name__)


def descriptor_limit() -> int:
    """Return how many files and sockets this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Take all that the system allows: the soft limit is often 1,024 for the sake of programs that use ``select``. For
    the start of a server's process; a library must not do it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)


LEAST = 128
"""With fewer descriptors nothing works well enough to begin."""
_LEAST_KEPT, _MOST_KEPT = 64, 1_024


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """Who may have how many descriptors at a time; ``str()`` is a line for the log."""

    limit: int
    connections: int
    queue_files: int
    log_files: int
    reserve: int

    def __str__(self) -> str:
        shares = {
            "connections": self.connections,
            "files of queues": self.queue_files,
            "files of the log": self.log_files,
            "all else": self.reserve,
        }
        return f"{self.limit} descriptors: " + ", ".join(f"{n} for {name}" for name, n in shares.items() if n)


def share(limit: int, connections: int, queue_files: int = 0) -> DescriptorBudget:
    """Share ``limit`` descriptors between so many connections and files of queues that are wanted, or fewer; without
    any of the latter there is no log either.

    Raises:
        ConfigError: they are too few for anything.
    """
    if limit < LEAST:
        raise ConfigError(f"{limit} descriptors are too few, at least {LEAST} are needed: raise ulimit -n")
    kept = min(max(limit // 8, _LEAST_KEPT), _MOST_KEPT)
    rest = limit - kept
    of_queues = min(queue_files, max(rest // 3, rest - connections))
    of_connections = min(connections, rest - of_queues)
    log_files = kept // 4 if queue_files else 0
    return DescriptorBudget(limit, of_connections, of_queues, log_files, limit - of_connections - of_queues - log_files)
