"""The limit of open descriptors of a process (``ulimit -n``), and its division between connections and files.

:func:`descriptor_limit` returns the limit (RLIMIT_NOFILE), and :func:`raise_descriptor_limit` raises it to the hard
limit. :func:`share` divides it without side effects::

    limit = connections + queue_files + log_files + reserve

    reserve       an eighth of the limit including log_files, 64 to 1,024: listeners, probes and scrapes, temporary
                  files, index files, outgoing connections
    log_files     a quarter of that: segments of the log that are open for reads
    connections   two thirds of the rest, plus the unused share of queue_files
    queue_files   a third of the rest, plus the unused share of connections

A file cache that reaches its limit closes one of its files. A server that reaches its limit refuses new connections.
Unused descriptors of one share are not available to another.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

from raptormq.errors import ConfigError
from raptormq.logs import get_logger

logger = get_logger(__name__)


def descriptor_limit() -> int:
    """Return the maximum number of open files and sockets of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard limit. The soft limit is often 1,024, for programs that use ``select``. Call
    this function when a server process starts; a library must not change the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("cannot raise the limit of open files from %d: %s", soft, error)


LEAST = 128
"""Minimum number of descriptors with which a server starts."""
_LEAST_KEPT, _MOST_KEPT = 64, 1_024


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """Maximum number of descriptors for each use; ``str()`` returns a line for the log."""

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
    """Divide ``limit`` descriptors between the requested numbers of connections and queue files. ``queue_files`` is 0
    for a process without a store, which has no log files either.

    Raises:
        ConfigError: ``limit`` is below :data:`LEAST`.
    """
    if limit < LEAST:
        raise ConfigError(f"{limit} descriptors are too few, at least {LEAST} are needed: raise ulimit -n")
    kept = min(max(limit // 8, _LEAST_KEPT), _MOST_KEPT)
    rest = limit - kept
    of_queues = min(queue_files, max(rest // 3, rest - connections))
    of_connections = min(connections, rest - of_queues)
    log_files = kept // 4 if queue_files else 0
    return DescriptorBudget(limit, of_connections, of_queues, log_files, limit - of_connections - of_queues - log_files)
