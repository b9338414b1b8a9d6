"""Connection options of source and sink: name servers, timeouts, credentials, TLS and encryption keys.

Environment variables supply missing options (`raptormq.client.ClientConfig`). Only the names of files are sent from the
driver to executors; each process reads the files of its own host. Secrets are excluded from `repr`, so that they do not
appear in plans, logs or errors. Spark redacts option values whose names contain "secret", "password", "token" or
"accessKey".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.option_parsing import TABLE_HINT, OptionTable, boolean, check_at_most_one, milliseconds, text_of
from raptormq.client import ClientConfig, ClientTls, Credentials, EncryptionKeys, KeyFile, KeyFolder
from raptormq.client.config import parse_addresses
from raptormq.errors import ConfigError


@dataclass(frozen=True)
class Connection:
    """Connection options of one `load()` or `save()`. Also the key of the connection cache."""

    name_servers: tuple[str, ...]
    """Option `nameServer`: `host:port`, several separated by `;`."""
    request_timeout_s: float = 5.0
    """Option `requestTimeoutMs`: timeout of one request, here in seconds."""
    retry_timeout_s: float = 60.0
    """Option `retryTimeoutMs`: how long a request is retried while servers are unavailable, here in seconds."""
    access_key: str | None = None
    """Option `accessKey`."""
    secret_key: str | None = field(default=None, repr=False)
    """Option `secretKey`."""
    secret_key_file: str | None = None
    """Option `secretKeyFile`: file with only the secret key, on the driver and on every executor."""
    security_token: str = field(default="", repr=False)
    """Option `securityToken`."""
    tls: bool | None = None
    """Option `tls`: default true if any other TLS option is set."""
    tls_ca: str | None = None
    """Option `tlsCa`: PEM file of the certificate authorities for verifying the servers."""
    tls_cert: str | None = None
    """Option `tlsCert`: PEM file of the client's certificate chain."""
    tls_key: str | None = None
    """Option `tlsKey`: PEM file of the client's private key."""
    tls_key_password: str = field(default="", repr=False)
    """Option `tlsKeyPassword`."""
    tls_check_name: bool = False
    """Option `tlsCheckName`: verify that a server's certificate contains the host name used to connect."""
    encryption_key_file: str | None = None
    """Option `encryptionKeyFile`: file with message encryption keys (`raptormq.client.KeyFile`)."""
    encryption_key_folder: str | None = None
    """Option `encryptionKeyFolder`: folder with message encryption keys, such as a mounted Secret
    (`raptormq.client.KeyFolder`)."""

    def client_config(self) -> ClientConfig:
        """Return the client configuration for this process.

        Raises:
            OptionError: A file named in an option cannot be used.
            ConfigError: An environment variable has an invalid value.
        """
        config: dict[str, Any] = {"name_servers": self.name_servers, "request_timeout": self.request_timeout_s}
        if self.access_key is not None:
            config["credentials"] = Credentials(self.access_key, self._secret(), self.security_token)
        if self._has_tls_options():
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

    def _has_tls_options(self) -> bool:
        return self.tls is not None or self.tls_check_name or any((self.tls_ca, self.tls_cert, self.tls_key))

    def client_tls(self) -> ClientTls | None:
        """Return the TLS settings of the options; None without TLS.

        Raises:
            OptionError: The options contradict each other.
        """
        if self.tls is False or not self._has_tls_options():
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


def _addresses(text: str) -> tuple[str, ...]:
    if not text.strip(" ;,"):
        raise ValueError("names no name server: it must be host:port, several separated by ';'")
    return parse_addresses(text)


_file = text_of("file")

CONNECTION_OPTIONS: OptionTable = {
    "nameServer": ("name_servers", _addresses),
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
    """Remove the connection fields from the parsed options `values`, and return them as a `Connection`.

    Raises:
        OptionError: An option is missing, or options contradict each other.
    """
    if "nameServer" not in given:
        missing = "option nameServer is missing: host:port of the name servers, separated by ';'"
        raise OptionError(missing if given else f"{missing}. If this is a table: {TABLE_HINT}")
    check_at_most_one(given, ("secretKey", "secretKeyFile"))
    check_at_most_one(given, ("encryptionKeyFile", "encryptionKeyFolder"))
    has_secret = "secretKey" in given or "secretKeyFile" in given
    if has_secret != ("accessKey" in given) or ("securityToken" in given and not has_secret):
        raise OptionError("give accessKey together with secretKey or secretKeyFile, or none of them")
    connection = Connection(**{each.name: values.pop(each.name) for each in fields(Connection) if each.name in values})
    if connection.tls is False and any(name in given for name in ("tlsCa", "tlsCert", "tlsKey", "tlsCheckName")):
        raise OptionError("option tls is false, but other TLS options are set")
    connection.client_tls()  # validates the combination
    return connection
