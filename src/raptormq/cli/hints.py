"""Appends hints to common errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raptormq.cli.exit_codes import CommandFailed
from raptormq.errors import ConnectionClosed, KeyMissing, NoRoute, ServerError, TransportError

_KEYS_HINT = (
    "set keys with RAPTORMQ_ENCRYPTION_KEYS='NAME=BASE64,...' or with the folder RAPTORMQ_ENCRYPTION_KEY_FOLDER"
)
_NO_PROPERTY_FILTER = "does not support consumer to filter message by SQL92"
"""RocketMQ's remark if property filters are disabled."""
_BATCH_ENCRYPTED = "are encrypted as one"
"""Remark of this broker for messages in encrypted batches."""


@contextmanager
def explaining(name_servers: str) -> Iterator[None]:
    """Add a hint to network errors, missing routes, missing keys, disabled filters, and encrypted batches.

    Raises:
        CommandFailed: replaces these errors.
    """
    try:
        yield
    except TransportError as error:
        servers = [address.strip() for address in name_servers.replace(",", ";").split(";")]
        if isinstance(error, ConnectionClosed):
            hint = "does the server require TLS (--tls), or a client certificate (--tls-cert, --tls-key)?"
        elif "SSL" in str(error) or "TLS" in str(error):
            hint = "does the server use TLS (if not: --no-tls), with a certificate that --tls-ca verifies?"
        elif any(address and address in str(error) for address in servers):
            hint = "is a name server running there? Start one with 'raptormq dev', or use another with -n HOST:PORT"
        else:
            hint = "is the broker running, and is its registered address (brokerIP1) reachable from this host?"
        raise CommandFailed(f"{error}; {hint}") from error
    except NoRoute as error:
        raise CommandFailed(f"{error}; 'raptormq topic list' shows the existing topics") from error
    except KeyMissing as error:
        raise CommandFailed(f"{error}; {_KEYS_HINT}") from error
    except ServerError as error:
        if _NO_PROPERTY_FILTER in error.remark:
            hint = "set enablePropertyFilter=true in broker.conf to enable it"
        elif _BATCH_ENCRYPTED in error.remark:
            hint = f"'raptormq consume' can print them; {_KEYS_HINT}"
        else:
            raise
        raise CommandFailed(f"{error}; {hint}") from error
