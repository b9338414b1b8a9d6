"""Where the API server is and who we are: the pod's service account, or a kubeconfig on a developer's machine.

Both are read by kopf's own minimal logins, so that our requests and kopf's watches always use the same identity. A
pod's token is replaced on disk about every hour; it is read again once a minute.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping

import kopf

from raptormq.errors import ConfigError

REREAD_S = 60.0

Login = Callable[[], kopf.ConnectionInfo | None]


class Connection:
    """Server address, TLS context and request headers."""

    def __init__(self, login: Login, clock: Callable[[], float] = time.monotonic) -> None:
        self._login = login
        self._clock = clock
        info = login()
        if info is None:
            raise ConfigError("neither a service account nor a kubeconfig says where the Kubernetes API server is")
        self._info = info
        self._read_at = clock()
        self.server = info.server.rstrip("/")
        self.ssl_context = _ssl_context(info)

    def headers(self) -> Mapping[str, str]:
        """Headers that carry the identity; empty when a client certificate does."""
        if self._clock() - self._read_at >= REREAD_S:
            self._info = self._login() or self._info
            self._read_at = self._clock()
        info = self._info
        if info.token:
            return {"Authorization": f"{info.scheme or 'Bearer'} {info.token}"}
        if info.username and info.password is not None:
            pair = base64.b64encode(f"{info.username}:{info.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


def login(settings: kopf.OperatorSettings) -> kopf.ConnectionInfo | None:
    """The pod's service account where there is one, else the current context of the kubeconfig."""
    return kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)


def _ssl_context(info: kopf.ConnectionInfo) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=None if info.ca_path is None else str(info.ca_path),
        cadata=None if info.ca_data is None else base64.b64decode(info.ca_data).decode(),
    )
    if info.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if info.certificate_path is not None:
        key_path = None if info.private_key_path is None else str(info.private_key_path)
        context.load_cert_chain(str(info.certificate_path), key_path)
    elif info.certificate_data is not None:
        _load_chain(context, info.certificate_data, info.private_key_data or "")
    return context


def _load_chain(context: ssl.SSLContext, certificate: str | bytes, key: str | bytes) -> None:
    """The ssl module reads client certificates from files only; the file lives for this call, for us alone."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(base64.b64decode(certificate) + b"\n" + base64.b64decode(key))
        file.flush()
        context.load_cert_chain(file.name)
