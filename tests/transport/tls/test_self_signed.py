"""The generated test certificate is self-signed and accepted by OpenSSL."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from raptormq.transport.tls.contexts import load_test_certificate, make_test_certificate


def test_openssl_verifies_it(tmp_path: Path) -> None:
    for number in range(20):  # the lengths of numbers in it vary
        path = tmp_path / f"{number}.pem"
        path.write_bytes(make_test_certificate(datetime.now(UTC)))
        command = ["openssl", "verify", "-CAfile", str(path), str(path)]
        assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.endswith(b"OK\n")


def test_it_is_valid_for_a_year(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    path.write_bytes(make_test_certificate(datetime.now(UTC) - timedelta(days=365)))
    done = subprocess.run(["openssl", "verify", "-CAfile", str(path), str(path)], capture_output=True, check=False)
    assert b"expired" in done.stderr


def test_two_are_different() -> None:
    now = datetime.now(UTC)
    assert make_test_certificate(now) != make_test_certificate(now)
    load_test_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
