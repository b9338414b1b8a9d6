"""Certificates for tests of TLS, created with the `openssl` command: authorities, and the certificates that they
sign.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


@dataclass(frozen=True)
class Issued:
    """PEM files of a certificate and its key (PKCS#8, not encrypted)."""

    cert: Path
    key: Path

    def copy_to(self, other: Issued) -> None:
        """Replace the files of `other` by these, as a renewal of the certificate does."""
        for mine, theirs in ((self.cert, other.cert), (self.key, other.key)):
            fresh = theirs.with_suffix(".new")
            fresh.write_bytes(mine.read_bytes())
            fresh.replace(theirs)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.cert = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.cert, "-days", "2", "-subj", f"/CN={name}")

    def issue(self, name: str, *, days: int = 2, hosts: str = "IP:127.0.0.1,DNS:localhost") -> Issued:
        """Create a certificate for `hosts`, valid for `days` from now. A negative number makes it expired."""
        stem = self._folder / f"{self._name}-{name}"
        issued = Issued(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        asked, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={hosts}\n")
        _openssl("req", "-new", *_KEY, "-keyout", issued.key, "-out", asked, "-subj", f"/CN={name}")
        sign = ["x509", "-req", "-in", asked, "-out", issued.cert, "-days", str(days), "-extfile", extensions]
        _openssl(*sign, "-CA", self.cert, "-CAkey", self._key, "-CAcreateserial")
        return issued


def mutual_tls(authority: Authority, own: Issued) -> dict[str, str]:
    """Return the settings of servers that require TLS with a client certificate. As clients, they use `own`."""
    issued = authority.issue("servers")
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(issued.cert),
        "tls.server.keyPath": str(issued.key),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.cert),
        "tls.client.certPath": str(own.cert),
        "tls.client.keyPath": str(own.key),
    }


def encrypt_key(issued: Issued, password: str) -> Path:
    """Write the key of the pair, encrypted with `password`. Return the path."""
    path = issued.key.with_suffix(".encrypted")
    _openssl("pkcs8", "-topk8", "-v2", "aes256", "-in", issued.key, "-out", path, "-passout", f"pass:{password}")
    return path


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
