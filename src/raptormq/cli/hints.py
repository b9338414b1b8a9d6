"""Hints appended to common errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raptormq.errors import ConnectionClosed, KeyMissing, NoRoute, RaptorMQError, ServerError, TransportError

_KEYS_HINT = (
    "keys are taken from RAPTORMQ_ENCRYPTION_KEYS='NAME=BASE64,...' or the folder RAPTORMQ_ENCRYPTION_KEY_FOLDER"
)
_NO_PROPERTY_FILTER = "does not support consumer to filter message by SQL92"
"""RocketMQ's remark when property filters are disabled."""
_BATCH_ENCRYPTED = "are encrypted as one"
"""This broker's remark for messages inside encrypted batches."""


class CommandFailed(RaptorMQError):
    """A command failed; the text says why and what to do."""


@contextmanager
def explaining(name_servers: str) -> Iterator[None]:
    """Add a hint to network errors, missing routes and keys, disabled filters, and batches that brokers cannot unpack.

    Raises:
        CommandFailed: in place of these errors.
    """
    try:
        yield
    except TransportError as error:
        servers = [address.strip() for address in name_servers.replace(",", ";").split(";")]
        if isinstance(error, ConnectionClosed):
            hint = "does it want TLS (--tls), or a certificate (--tls-cert, --tls-key)?"
        elif "SSL" in str(error) or "TLS" in str(error):
            hint = "does it speak TLS (if not: --no-tls), with a certificate that --tls-ca proves?"
        elif any(address and address in str(error) for address in servers):
            hint = "is a name server running there? Start one with 'raptormq dev', or name another with -n HOST:PORT"
        else:
            hint = "is the broker up, and is the address it registered (brokerIP1) reachable from here?"
        raise CommandFailed(f"{error}; {hint}") from error
    except NoRoute as error:
        raise CommandFailed(f"{error}; 'raptormq topic list' shows the existing topics") from error
    except KeyMissing as error:
        raise CommandFailed(f"{error}; {_KEYS_HINT}") from error
    except ServerError as error:
        if _NO_PROPERTY_FILTER in error.remark:
            hint = "set enablePropertyFilter=true in broker.conf to switch it on"
        elif _BATCH_ENCRYPTED in error.remark:
            hint = f"'raptormq consume' prints them; {_KEYS_HINT}"
        else:
            raise
        raise CommandFailed(f"{error}; {hint}") from error
