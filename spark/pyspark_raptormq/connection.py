"""How source and sink reach the brokers: name servers, time-outs, credentials, TLS and encryption keys.

What an option does not say, the environment of the process says (`raptormq.client.ClientConfig`). Files are named, not
read, here: their contents never travel from the driver to executors, and each process reads those of its own host.
Secrets have no `repr`, so that no plan, log or error shows them; Spark itself hides the values of options whose names
hold "secret", "password", "token" or "accessKey".
Neighbours: `options` and `sink.options` hold a `Connection`, `cluster` connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.option_parsing import OptionTable, boolean, check_at_most_one, milliseconds, text_of
from raptormq.client import ClientConfig, ClientTls, Credentials, EncryptionKeys, KeyFile, KeyFolder
from raptormq.client.config import parse_addresses
from raptormq.errors import ConfigError


@dataclass(frozen=True)
class Connection:
    """What the connection options of one `load()` or `save()` say; the key of a process's cached connections."""

    name_servers: tuple[str, ...]
    """Option `nameServer`: `host:port`, several separated by `;`."""
    request_timeout_s: float = 5.0
    """Option `requestTimeoutMs`: answer time of one request."""
    retry_timeout_s: float = 60.0
    """Option `retryTimeoutMs`: how long a request is repeated while brokers or name servers cannot be reached."""
    access_key: str | None = None
    """Option `accessKey`."""
    secret_key: str | None = field(default=None, repr=False)
    """Option `secretKey`."""
    secret_key_file: str | None = None
    """Option `secretKeyFile`: a file that holds the secret key alone, on the driver and on every executor."""
    security_token: str = field(default="", repr=False)
    """Option `securityToken`."""
    tls: bool | None = None
    """Option `tls`; without it any of the other TLS options says true."""
    tls_ca: str | None = None
    """Option `tlsCa`: PEM file of the authorities that the servers' certificates are verified against."""
    tls_cert: str | None = None
    """Option `tlsCert`: PEM file of the client's own certificate chain."""
    tls_key: str | None = None
    """Option `tlsKey`: PEM file of its key."""
    tls_key_password: str = field(default="", repr=False)
    """Option `tlsKeyPassword`."""
    tls_check_name: bool = False
    """Option `tlsCheckName`: servers' certificates must hold the names they are reached by."""
    encryption_key_file: str | None = None
    """Option `encryptionKeyFile`: a file of keys of encrypted messages (`raptormq.client.KeyFile`)."""
    encryption_key_folder: str | None = None
    """Option `encryptionKeyFolder`: a folder of them, as Kubernetes mounts a Secret (`raptormq.client.KeyFolder`)."""

    def client_config(self) -> ClientConfig:
        """Return the client's configuration in this process.

        Raises:
            OptionError: a file that an option names cannot be used.
            ConfigError: what the environment says in place of an option cannot be used.
        """
        config: dict[str, Any] = {"name_servers": self.name_servers, "request_timeout": self.request_timeout_s}
        if self.access_key is not None:
            config["credentials"] = Credentials(self.access_key, self._secret(), self.security_token)
        if self._says_tls():
            config["tls"] = self.client_tls()
        keys = self._keys()
        if keys is not None:
            config["keys"] = keys
        return ClientConfig(**config)

    def _secret(self) -> str:
        if self.secret_key is not None or self.secret_key_file is None:
            return self.secret_key or ""
        try:
            secret = Path(self.secret_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise OptionError(f"option secretKeyFile: cannot read {self.secret_key_file}: {reason}") from None
        if not secret:
            raise OptionError(f"option secretKeyFile: {self.secret_key_file} is empty")
        return secret

    def _says_tls(self) -> bool:
        return self.tls is not None or self.tls_check_name or any((self.tls_ca, self.tls_cert, self.tls_key))

    def client_tls(self) -> ClientTls | None:
        """Return how the options say to speak TLS, `None` where they do not.

        Raises:
            OptionError: they do not belong together.
        """
        if self.tls is False or not self._says_tls():
            return None
        try:
            return ClientTls(
                trust_cert_path=self.tls_ca or "",
                cert_path=self.tls_cert or "",
                key_path=self.tls_key or "",
                key_password=self.tls_key_password,
                auth_server=self.tls_ca is not None,
                check_name=self.tls_check_name,
            )
        except ConfigError as error:
            raise OptionError(f"options tlsCa, tlsCert, tlsKey and tlsCheckName: {error}") from error

    def _keys(self) -> EncryptionKeys | None:
        try:
            if self.encryption_key_file is not None:
                return KeyFile(self.encryption_key_file)
            return KeyFolder(self.encryption_key_folder) if self.encryption_key_folder is not None else None
        except ConfigError as error:
            option = "encryptionKeyFile" if self.encryption_key_file is not None else "encryptionKeyFolder"
            raise OptionError(f"option {option}: {error}") from error


_file = text_of("file")

CONNECTION_OPTIONS: OptionTable = {
    "nameServer": ("name_servers", parse_addresses),
    "requestTimeoutMs": ("request_timeout_s", milliseconds),
    "retryTimeoutMs": ("retry_timeout_s", milliseconds),
    "accessKey": ("access_key", text_of("key")),
    "secretKey": ("secret_key", text_of("key")),
    "secretKeyFile": ("secret_key_file", _file),
    "securityToken": ("security_token", text_of("token")),
    "tls": ("tls", boolean),
    "tlsCa": ("tls_ca", _file),
    "tlsCert": ("tls_cert", _file),
    "tlsKey": ("tls_key", _file),
    "tlsKeyPassword": ("tls_key_password", text_of("password")),
    "tlsCheckName": ("tls_check_name", boolean),
    "encryptionKeyFile": ("encryption_key_file", _file),
    "encryptionKeyFolder": ("encryption_key_folder", text_of("folder")),
}


def take_connection(values: dict[str, Any], given: Mapping[str, str]) -> Connection:
    """Take the fields of a connection out of the values that options fill, and return it.

    Raises:
        OptionError: an option is missing, or two contradict each other.
    """
    if "nameServer" not in given:
        raise OptionError("option nameServer is missing: host:port of the name servers, separated by ';'")
    check_at_most_one(given, ("secretKey", "secretKeyFile"))
    check_at_most_one(given, ("encryptionKeyFile", "encryptionKeyFolder"))
    has_secret = "secretKey" in given or "secretKeyFile" in given
    if has_secret != ("accessKey" in given) or ("securityToken" in given and not has_secret):
        raise OptionError("give accessKey together with secretKey or secretKeyFile, or none of them")
    connection = Connection(**{each.name: values.pop(each.name) for each in fields(Connection) if each.name in values})
    if connection.tls is False and any(name in given for name in ("tlsCa", "tlsCert", "tlsKey", "tlsCheckName")):
        raise OptionError("option tls is false, but other options say how to speak TLS")
    connection.client_tls()  # raises where they do not belong together
    return connection
