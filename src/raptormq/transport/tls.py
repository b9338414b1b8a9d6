"""TLS contexts of servers and clients, made anew when a file they were read from has changed (RocketMQ ``TlsHelper``).

A context is asked for at every new connection, and looks then whether its files are still those it was made of: no
thread watches them, and a renewed certificate counts from the next connection on. Neighbours: :mod:`.tls_settings`
reads what is here from settings, :mod:`.listener` and :mod:`.pool` use it.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.transport.self_signed import load_test_certificate

logger = get_logger(__name__)

HANDSHAKE_S = 10.0
"""A handshake that takes longer is given up, as in the Java client and server."""
SHUTDOWN_S = 2.0
"""How long a closed connection waits for the peer's farewell."""

ClientAuth = Literal["none", "optional", "require"]
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a server speaks TLS beside plain connections, or instead of them."""

    enforcing: bool = False
    """Whether plain connections are refused."""
    cert_path: str = ""
    """PEM file of the certificate chain; empty: a certificate for tests is made at the start."""
    key_path: str = ""
    key_password: str = field(default="", repr=False)
    trust_cert_path: str = ""
    """PEM file of the authorities of clients' certificates."""
    client_auth: ClientAuth = "none"

    def context(self) -> FreshContext:
        """Return the contexts of the server's connections.

        Raises:
            ConfigError: certificate, key or authorities cannot be used.
        """
        if not self.cert_path:
            logger.warning("TLS with a certificate for tests, which proves nothing to clients")
        return FreshContext(self._make, self.cert_path, self.key_path, self.trust_cert_path)

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        if self.cert_path:
            _load_certificate(context, self.cert_path, self.key_path, self.key_password)
        else:
            load_test_certificate(context)
        if self.trust_cert_path:
            _load_authorities(context, self.trust_cert_path)
        context.verify_mode = _VERIFY[self.client_auth]
        return context


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How a client speaks TLS. As in Apache RocketMQ the server's certificate is looked at only on demand."""

    trust_cert_path: str | Path = ""
    """PEM file of the authorities that the server's certificate must come from; empty with ``auth_server``: those of
    the system."""
    cert_path: str | Path = ""
    """PEM file of the client's own certificate chain, for servers that want one."""
    key_path: str | Path = ""
    key_password: str = field(default="", repr=False)
    auth_server: bool = False
    """Whether the server's certificate is verified."""
    check_name: bool = False
    """Whether it must hold the name or address by which the server was reached; only with ``auth_server``."""

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: a certificate without its key, or a name to be checked on a certificate that is not.
        """
        if bool(self.cert_path) != bool(self.key_path):
            raise ConfigError("a client's certificate needs its key, and a key its certificate")
        if self.check_name and not self.auth_server:
            raise ConfigError("the name in a server's certificate means nothing unless the certificate is verified")

    def context(self) -> FreshContext:
        """Return the contexts of the client's connections.

        Raises:
            ConfigError: certificate, key or authorities cannot be used.
        """
        return FreshContext(self._make, self.cert_path, self.key_path, self.trust_cert_path)

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_name
        context.verify_mode = ssl.CERT_REQUIRED if self.auth_server else ssl.CERT_NONE
        if self.trust_cert_path:
            _load_authorities(context, self.trust_cert_path)
        elif self.auth_server:
            context.load_default_certs()
        if self.cert_path:
            _load_certificate(context, self.cert_path, self.key_path, self.key_password)
        return context


class FreshContext:
    """A context that follows its files."""

    def __init__(self, make: Callable[[], ssl.SSLContext], *paths: str | Path) -> None:
        """``make`` reads the files ``paths`` (empty ones do not count).

        Raises:
            ConfigError: ``make`` does.
        """
        self._make = make
        self._paths = [path for path in paths if path]
        self._stamps = self._look()
        self._context = make()

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection; while changed files cannot be used, the one before them."""
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._make()
                logger.info("read again, since they have changed: %s", ", ".join(map(str, self._paths)))
            except ConfigError as error:
                logger.warning("%s; what was read before stays in force", error)
        return self._context

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str | Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _load_certificate(context: ssl.SSLContext, cert_path: str | Path, key_path: str | Path, key_password: str) -> None:
    _require_readable(cert_path)
    _require_readable(key_path)
    try:
        # Given as a function, since OpenSSL asks at the terminal for a password that is missing.
        context.load_cert_chain(cert_path, key_path, lambda: key_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot use certificate {cert_path} with key {key_path}: {_reason(error)}") from error


def _load_authorities(context: ssl.SSLContext, path: str | Path) -> None:
    _require_readable(path)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot use the trusted certificates {path}: {_reason(error)}") from error


def _require_readable(path: str | Path) -> None:
    """OpenSSL's own errors do not name the file, and it would wait for somebody to write into a pipe."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            raise ConfigError(f"cannot read {path}: it is a pipe")
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
