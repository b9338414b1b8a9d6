"""Secrets of access control. The operator creates and reads them, and signs its requests with one of them.

    adminSecretName      credentials of the first administrator, for people
    operatorSecretName   credentials of the operator and of the brokers' own requests

Both have type kubernetes.io/basic-auth and are mounted into the servers (`raptormq.security.mounted_users`). The
operator gets only the Secrets that a BrokerCluster names; it neither lists nor watches Secrets.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable

from raptormq.client import Credentials
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import Conflict, Invalid, KubeError
from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster

ADMIN_USER, OPERATOR_USER = "admin", "raptormq-operator"
NO_RIGHT = "the operator may not read Secrets of {}: value accessControl.enabled of its chart gives it the right"
_FORBIDDEN = 403

Keys = tuple[Credentials, ...]
"""Credentials for signing, in the order in which they are tried. During a password change the second entry has the
other password, for servers that do not have the new one yet."""


class Unusable(Exception):
    """A Secret cannot be used. The message gives the reason and never contains the Secret's data."""


def random_password() -> str:
    """Return a password of 192 random bits in URL-safe Base64."""
    return secrets.token_urlsafe(24)


class AccessKeys:
    """The operator's credentials for each cluster, cached from the last read of the Secret."""

    def __init__(self, api: KubeApi, password: Callable[[], str] = random_password) -> None:
        self._api = api
        self._password = password
        self._keys: dict[tuple[str, str, str], Keys] = {}

    async def current(self, cluster: Cluster) -> Keys:
        """Return the cached credentials; read the Secret when nothing is cached. Empty when the Secret is
        unreadable."""
        if cluster.access_control is None:
            return ()
        known = self._keys.get(_key(cluster))
        if known is not None:
            return known
        try:
            return await self._read(cluster)
        except (KubeError, Unusable):
            self._keys[_key(cluster)] = ()  # `ensure` reads the Secret again and reports the error
            return ()

    async def ensure(self, cluster: Cluster) -> str | None:
        """Read the Secrets and create missing ones. Return an error message, or None when both are usable.

        Raises:
            KubeError: The request failed for a reason other than missing permission.
        """
        access = cluster.access_control
        if access is None:
            return None
        try:
            if access.enabled:
                await self._usable(cluster, access.admin_secret, ADMIN_USER)
                await self._usable(cluster, access.operator_secret, OPERATOR_USER)
            await self._read(cluster)
        except Unusable as error:
            return str(error)
        except KubeError as error:
            if error.status == _FORBIDDEN:
                return f"{NO_RIGHT.format(cluster.namespace)}: {error}"
            raise
        return None

    def forget(self, namespace: str, name: str) -> None:
        """Drop the credentials of a deleted cluster."""
        for key in [key for key in self._keys if key[:2] == (namespace, name)]:
            del self._keys[key]

    async def _read(self, cluster: Cluster) -> Keys:
        access = cluster.access_control
        assert access is not None
        secret = await self._api.get("Secret", cluster.namespace, access.operator_secret)
        if secret is None:  # valid while access control is turned off
            keys: Keys = ()
        else:
            user, passwords = _contents(secret)
            keys = tuple(Credentials(user, password) for password in passwords)
        self._keys[_key(cluster)] = keys
        return keys

    async def _usable(self, cluster: Cluster, name: str, user: str) -> None:
        secret = await self._api.get("Secret", cluster.namespace, name)
        if secret is None:
            secret = await self._make(cluster, name, user)
        _contents(secret)

    async def _make(self, cluster: Cluster, name: str, user: str) -> Manifest:
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(cluster, name, names.managed_labels(cluster.name)),
            "type": "kubernetes.io/basic-auth",
            "data": {"username": _encoded(user), "password": _encoded(self._password())},
        }
        try:
            return await self._api.create(manifest)
        except Conflict:
            made = await self._api.get("Secret", cluster.namespace, name)
            if made is None:
                raise
            return made
        except Invalid as error:
            raise Unusable(f"Secret {name} cannot be created: {error}") from error


def _contents(secret: Manifest) -> tuple[str, list[str]]:
    """Return the user name and one or two passwords; requests are signed with the first.

    Raises:
        Unusable: The user name or password is missing, or a value is not UTF-8.
    """
    data, name = secret.get("data", {}), secret["metadata"]["name"]
    found = {key: _decoded(data[key], name, key) for key in ("username", "password", "otherPassword") if key in data}
    for key in ("username", "password"):
        if not found.get(key):
            text = f"Secret {name} has no {key}: it needs username and password, as type kubernetes.io/basic-auth"
            raise Unusable(text)
    return found["username"], [found[key] for key in ("password", "otherPassword") if found.get(key)]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str, name: str, key: str) -> str:
    try:
        return base64.b64decode(text).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        raise Unusable(f"{key} of Secret {name} is not UTF-8 text") from None


def _key(cluster: Cluster) -> tuple[str, str, str]:
    access = cluster.access_control
    assert access is not None
    return cluster.namespace, cluster.name, access.operator_secret
