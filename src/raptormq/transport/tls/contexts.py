"""TLS contexts of servers and clients, reloaded when their files change (RocketMQ ``TlsHelper``).

:class:`ServerTls` and :class:`ClientTls` are the settings of a context. :class:`FreshContext` holds the context and,
for each new connection, first checks whether its files have changed. No thread watches the files. A renewed certificate
is used from the next connection on.

:func:`load_test_certificate` generates a self-signed certificate for tests, like RocketMQ servers in their test mode
(netty ``SelfSignedCertificate``). Python's standard library cannot generate certificates, so this module encodes the
minimum that TLS needs: an ECDSA key on the curve P-256 and an X.509 version 1 certificate, in DER::

    Certificate    SEQUENCE { tbs, algorithm ecdsa-with-SHA256, BIT STRING { SEQUENCE { INTEGER r, INTEGER s } } }
    tbs            SEQUENCE { INTEGER serial, algorithm, Name issuer, SEQUENCE { from, until }, Name subject, key }
    EC PRIVATE KEY SEQUENCE { INTEGER 1, OCTET STRING secret, [0] curve, [1] BIT STRING point }

The certificate does not authenticate the server, and the arithmetic is not protected against timing attacks. Use it
only for tests.

See also: :mod:`~raptormq.transport.tls.settings` creates :class:`ServerTls` and :class:`ClientTls` from settings.
:mod:`~raptormq.transport.accept.listener` and :mod:`~raptormq.transport.pool` use the contexts.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from raptormq.errors import ConfigError
from raptormq.logs import get_logger

logger = get_logger(__name__)


_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
"""Field, order and generator of P-256 (FIPS 186-4, D.1.2.3); the curve is y^2 = x^3 - 3x + b."""

_EC_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_PRIME256V1 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_WITH_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_SEQUENCE, _SET, _INTEGER, _BIT_STRING, _OCTET_STRING, _UTF8, _UTC_TIME = 0x30, 0x31, 0x02, 0x03, 0x04, 0x0C, 0x17
_DAYS = 365

Point = tuple[int, int]


def load_test_certificate(context: ssl.SSLContext) -> None:
    """Generate a key and a certificate and load them into ``context``. They are never written to a disk."""
    handle = os.memfd_create("test-certificate")
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(make_test_certificate(datetime.now(UTC)))
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def make_test_certificate(now: datetime) -> bytes:
    """Return key and certificate as PEM, valid for a year from the day before ``now``."""
    secret = secrets.randbelow(_N - 1) + 1
    x, y = _times(secret, _G)
    point = _bits(b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big"))
    algorithm = _tlv(_SEQUENCE, _ECDSA_WITH_SHA256)
    name = _tlv(_SEQUENCE, _tlv(_SET, _tlv(_SEQUENCE, _COMMON_NAME + _tlv(_UTF8, b"raptormq test certificate"))))
    begin = now - timedelta(days=1)
    validity = _tlv(_SEQUENCE, _time(begin) + _time(begin + timedelta(days=_DAYS)))
    key = _tlv(_SEQUENCE, _tlv(_SEQUENCE, _EC_PUBLIC_KEY + _PRIME256V1) + point)
    signed = _tlv(_SEQUENCE, _integer(secrets.randbits(63) + 1) + algorithm + name + validity + name + key)
    certificate = _tlv(_SEQUENCE, signed + algorithm + _bits(_signature(secret, signed)))
    private = _tlv(
        _SEQUENCE,
        _integer(1) + _tlv(_OCTET_STRING, secret.to_bytes(32, "big")) + _tlv(0xA0, _PRIME256V1) + _tlv(0xA1, point),
    )
    return _pem("EC PRIVATE KEY", private) + _pem("CERTIFICATE", certificate)


def _signature(secret: int, signed: bytes) -> bytes:
    """Return the ECDSA signature. The case that r or s is zero is ignored, because it is less likely than a guessed
    key.
    """
    digest = int.from_bytes(hashlib.sha256(signed).digest(), "big")
    once = secrets.randbelow(_N - 1) + 1
    r = _times(once, _G)[0] % _N
    s = pow(once, -1, _N) * (digest + r * secret) % _N
    return _tlv(_SEQUENCE, _integer(r) + _integer(s))


def _times(factor: int, point: Point) -> Point:
    """Return ``factor`` (1 to the order - 1) times ``point``."""
    result: Point | None = None
    while factor:
        if factor & 1:
            result = point if result is None else _sum(result, point)
        point = _sum(point, point)
        factor >>= 1
    assert result is not None
    return result


def _sum(a: Point, b: Point) -> Point:
    """Return the sum of two points that are the same or have different x (multiples of a point below its order)."""
    if a == b:
        slope = 3 * (a[0] * a[0] - 1) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _tlv(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + length.to_bytes(size, "big") + content


def _integer(value: int) -> bytes:
    return _tlv(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _tlv(_BIT_STRING, b"\0" + content)


def _time(moment: datetime) -> bytes:
    """Return an ASN.1 UTCTime. It has two digits of the year and is valid until 2049."""
    return _tlv(_UTC_TIME, moment.strftime("%y%m%d%H%M%SZ").encode())


def _pem(kind: str, content: bytes) -> bytes:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]).encode()


HANDSHAKE_S = 10.0
"""Timeout of the handshake in seconds, as in the Java client and server."""
SHUTDOWN_S = 2.0
"""Maximum time in seconds that a close waits for the peer's close_notify."""

ClientAuth = Literal["none", "optional", "require"]
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS settings of a server."""

    enforcing: bool = False
    """Whether unencrypted connections are refused."""
    cert_path: str = ""
    """PEM file of the certificate chain. If it is empty, a test certificate is generated at the start."""
    key_path: str = ""
    key_password: str = field(default="", repr=False)
    trust_cert_path: str = ""
    """PEM file of the CA certificates that must have signed client certificates."""
    client_auth: ClientAuth = "none"
    in_transition: bool = False
    """Whether unencrypted connections and clients without a certificate are accepted despite the other settings, while
    the settings of the peers change."""

    @property
    def refuses_plain(self) -> bool:
        """Whether unencrypted connections are refused now."""
        return self.enforcing and not self.in_transition

    def context(self) -> FreshContext:
        """Return the TLS context of the server's connections.

        Raises:
            ConfigError: the certificate, the key or the CA certificates cannot be used.
        """
        if not self.cert_path:
            logger.warning("TLS uses a generated test certificate, which clients cannot verify")
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
        context.verify_mode = _VERIFY["none" if self.in_transition else self.client_auth]
        return context


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS settings of a client. As in Apache RocketMQ, the server's certificate is verified only on request."""

    trust_cert_path: str | Path = ""
    """PEM file of the CA certificates that must have signed the server's certificate. If it is empty, ``auth_server``
    uses the CA certificates of the system."""
    cert_path: str | Path = ""
    """PEM file of the client's certificate chain, for servers that request client certificates."""
    key_path: str | Path = ""
    key_password: str = field(default="", repr=False)
    auth_server: bool = False
    """Whether the server's certificate is verified against the CA certificates."""
    check_name: bool = False
    """Whether the server's certificate must contain the host name or address of the connection. Requires
    ``auth_server``."""
    in_transition: bool = False
    """Whether a server that ends the TLS handshake is connected without TLS, while the settings of the peers change."""

    def __post_init__(self) -> None:
        """Check that the fields are consistent.

        Raises:
            ConfigError: a certificate without a key, a key without a certificate, or a check of the host name without
                ``auth_server``.
        """
        if bool(self.cert_path) != bool(self.key_path):
            raise ConfigError("a client certificate and its key must be given together")
        if self.check_name and not self.auth_server:
            raise ConfigError("the name in a server certificate can be checked only if the certificate is verified")

    def context(self) -> FreshContext:
        """Return the TLS context of the client's connections.

        Raises:
            ConfigError: the certificate, the key or the CA certificates cannot be used.
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
    """A TLS context that is reloaded when its files change."""

    def __init__(self, make: Callable[[], ssl.SSLContext], *paths: str | Path) -> None:
        """``make`` creates the context from the files ``paths``. Empty paths are ignored.

        Raises:
            ConfigError: raised by ``make``.
        """
        self._make = make
        self._paths = [path for path in paths if path]
        self._stamps = self._look()
        self._context = make()

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection; the previous context if changed files cannot be loaded."""
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._make()
                logger.info("reloaded changed TLS files: %s", ", ".join(map(str, self._paths)))
            except ConfigError as error:
                logger.warning("%s; the previous TLS files stay in use", error)
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
        # A function, because OpenSSL prompts on the terminal if no password is given.
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
    """Check that the file can be opened. OpenSSL's errors do not name the file, and reading a pipe would block."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            raise ConfigError(f"cannot read {path}: it is a pipe")
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
