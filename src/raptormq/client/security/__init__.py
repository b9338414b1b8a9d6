"""Identity and trust of a client: credentials, encryption keys, TLS."""

from __future__ import annotations

from raptormq.client.security.credentials import Credentials, credentials_from_environment
from raptormq.client.security.keys import (
    EncryptionKeys,
    EnvironmentKeys,
    KeyFile,
    KeyFolder,
    is_key_name,
    keys_from_environment,
    require_keys,
)
from raptormq.client.security.tls import ClientTls, tls_from_environment

__all__ = [
    "ClientTls",
    "Credentials",
    "EncryptionKeys",
    "EnvironmentKeys",
    "KeyFile",
    "KeyFolder",
    "credentials_from_environment",
    "is_key_name",
    "keys_from_environment",
    "require_keys",
    "tls_from_environment",
]
