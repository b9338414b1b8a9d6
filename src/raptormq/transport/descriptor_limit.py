"""The number of descriptors that this process may have (RLIMIT_NOFILE)."""

from __future__ import annotations

import resource
import sys

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
