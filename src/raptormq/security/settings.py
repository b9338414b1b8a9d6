"""Settings of access control for brokers and name servers, with RocketMQ's keys (``AuthConfig``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raptormq.config_file import integer, known_keys, parse_bool, setting
from raptormq.config_paths import file_paths, path_or_none
from raptormq.errors import BodyError, ConfigError
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.signing import Credentials


def _code_set(text: str) -> frozenset[int]:
    return frozenset(int(code) for code in text.split(",") if code.strip())


def request_codes(text: str) -> str:
    """Return ``text`` if it is a list of request codes. A parser for :func:`~raptormq.config_file.setting`."""
    try:
        _code_set(text)
    except ValueError:
        raise ValueError("request codes separated by commas") from None
    return text


def _credentials(name_key: str, secret_key: str) -> Callable[[str], Credentials | None]:
    def parse(text: str) -> Credentials | None:
        if not text.strip():
            return None
        try:
            given = loads_object(text.encode())
        except BodyError:
            given = {}
        name, secret = given.get(name_key), given.get(secret_key)
        if not (isinstance(name, str) and name.strip() and isinstance(secret, str) and secret.strip()):
            # Not ValueError: its message would contain the value, which may be a secret.
            raise ConfigError(f'invalid credentials: expected {{"{name_key}": "…", "{secret_key}": "…"}}')
        return Credentials(name, secret, str(given.get("securityToken") or ""))

    return parse


_USER = _credentials("username", "password")
_KEYS = _credentials("accessKey", "secretKey")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """Settings of authentication and authorization."""

    authentication: bool = setting(False, "authenticationEnabled", parse=parse_bool)
    authorization: bool = setting(False, "authorizationEnabled", parse=parse_bool)
    authentication_whitelist: str = setting("", "authenticationWhitelist", parse=request_codes)
    """Request codes without authentication, separated by commas."""
    authorization_whitelist: str = setting("", "authorizationWhitelist", parse=request_codes)
    """Request codes without authorization, separated by commas."""
    first_user: Credentials | None = setting(None, "initAuthenticationUser", parse=_USER)  # noqa: RUF009 - declares
    """``{"username": …, "password": …}``: a super user, which is created unless a user with this name exists."""
    own_credentials: Credentials | None = setting(  # noqa: RUF009 - declares
        None, "innerClientAuthenticationCredentials", parse=_KEYS
    )
    """``{"accessKey": …, "secretKey": …}``: credentials for requests that brokers send. The user is created as a super
    user, too.
    """

    super_user_paths: str = setting("", "superUserPaths", parse=file_paths)
    """Folders of super users, separated by commas. Each contains the files username and password, and optionally
    otherPassword, for example a mounted Secret of type kubernetes.io/basic-auth. Requests cannot change these users.
    Changed files take effect within a second.
    """
    own_credentials_path: str = setting("", "innerClientCredentialsPath", parse=path_or_none)
    """Folder of the same format with the credentials for requests that brokers send. It replaces
    ``innerClientAuthenticationCredentials``. The user is a super user, too.
    """
    demand_full_signature: bool = setting(False, "demandFullSignature", parse=parse_bool)
    """Whether full signatures (:mod:`raptormq.protocol.full_signature`) are required. Apache RocketMQ clients do not
    send them."""
    full_signature_window_ms: int = setting(60_000, "fullSignatureWindow", parse=integer(1_000, 3_600_000))
    """Maximum difference between the time of a full signature and the clock of the server, in ms."""

    def __post_init__(self) -> None:
        """Check combinations of settings.

        Raises:
            ConfigError: authorization or full signatures are enabled without authentication, or both kinds of own
                credentials are set.
        """
        if self.authorization and not self.authentication:
            raise ConfigError(
                "authorizationEnabled=true needs authenticationEnabled=true: without signatures every client could "
                "claim to be a super user"
            )
        if self.own_credentials is not None and self.own_credentials_path:
            raise ConfigError("set innerClientAuthenticationCredentials or innerClientCredentialsPath, not both")
        if self.demand_full_signature and not self.authentication:
            raise ConfigError("demandFullSignature=true needs authenticationEnabled=true")

    @property
    def is_on(self) -> bool:
        """Whether authentication or authorization is enabled."""
        return self.authentication or self.authorization

    @property
    def user_folders(self) -> tuple[Path, ...]:
        """Folders of ``superUserPaths`` and ``innerClientCredentialsPath``, without duplicates."""
        texts = [*self.super_user_paths.split(","), self.own_credentials_path]
        return tuple(Path(text) for text in dict.fromkeys(text.strip() for text in texts) if text)

    @property
    def unsigned_codes(self) -> frozenset[int]:
        """The codes of ``authenticationWhitelist``."""
        return _code_set(self.authentication_whitelist)

    @property
    def authorization_free_codes(self) -> frozenset[int]:
        """The codes of ``authorizationWhitelist``."""
        return _code_set(self.authorization_whitelist)


ACCESS_KEYS = frozenset(known_keys(AccessControl) | {"authConfigPath"})
"""Keys of settings that no request may change."""
