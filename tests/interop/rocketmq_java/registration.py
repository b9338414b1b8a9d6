"""Waits until a name server lists a broker, with GET_BROKER_CLUSTER_INFO (106) in a manually encoded frame::

4 bytes length | 4 bytes: top byte 0 (JSON), header length | header JSON | body
"""

from __future__ import annotations

import json
import socket
import ssl
import time

from .watched_process import ProcessError

_HEADER = json.dumps(
    {"code": 106, "language": "JAVA", "version": 479, "opaque": 1, "flag": 0, "extFields": {}}
).encode()
_REQUEST = (4 + len(_HEADER)).to_bytes(4, "big") + len(_HEADER).to_bytes(4, "big") + _HEADER
_POLL_S = 0.1


def wait_until_listed(
    namesrv_port: int, timeout: float, broker_name: str = "broker-a", tls: ssl.SSLContext | None = None
) -> None:
    """Send requests (over `tls`) until a response lists the broker; raises ProcessError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while f'"{broker_name}"'.encode() not in _cluster_info(namesrv_port, tls):
        if time.monotonic() > deadline:
            raise ProcessError(f"the name server does not list {broker_name} after {timeout:g} s")
        time.sleep(_POLL_S)  # polled, because the name server does not notify of registrations


def _cluster_info(port: int, tls: ssl.SSLContext | None) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            connection = plain if tls is None else tls.wrap_socket(plain)
            with connection, connection.makefile("rwb") as stream:
                stream.write(_REQUEST)
                stream.flush()
                return stream.read(int.from_bytes(stream.read(4), "big"))
    except OSError:
        return b""  # it does not listen yet
