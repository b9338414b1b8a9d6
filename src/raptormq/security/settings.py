"""Settings of access control, under RocketMQ's keys (``AuthConfig``); the same for brokers and name servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raptormq.config_file import integer, known_keys, parse_bool, setting
from raptormq.errors import BodyError, ConfigError
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.signing import Credentials


def _code_set(text: str) -> frozenset[int]:
    return frozenset(int(code) for code in text.split(",") if code.strip())


def request_codes(text: str) -> str:
    """Return ``text`` if it is a list of request codes (a parser of :func:`~raptormq.config_file.setting`)."""
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
            # not ValueError, whose text would show the value, possibly a secret
            raise ConfigError(f'its credentials are not usable: expected {{"{name_key}": "…", "{secret_key}": "…"}}')
        return Credentials(name, secret, str(given.get("securityToken") or ""))

    return parse


_USER = _credentials("username", "password")
_KEYS = _credentials("accessKey", "secretKey")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """Who may send requests."""

    authentication: bool = setting(False, "authenticationEnabled", parse=parse_bool)
    authorization: bool = setting(False, "authorizationEnabled", parse=parse_bool)
    authentication_whitelist: str = setting("", "authenticationWhitelist", parse=request_codes)
    """Request codes that need no signature, separated by commas."""
    authorization_whitelist: str = setting("", "authorizationWhitelist", parse=request_codes)
    """Request codes that need no permission, separated by commas."""
    first_user: Credentials | None = setting(None, "initAuthenticationUser", parse=_USER)  # noqa: RUF009 - declares
    """``{"username": …, "password": …}``: a super user, created unless a user of that name exists."""
    own_credentials: Credentials | None = setting(  # noqa: RUF009 - declares
        None, "innerClientAuthenticationCredentials", parse=_KEYS
    )
    """``{"accessKey": …, "secretKey": …}``: credentials for the brokers' own requests; their user is a super
    user, too.
    """

    super_user_paths: str = setting("", "superUserPaths")
    """Folders separated by commas, each with the files username and password, and optionally otherPassword, such as a
    mounted Secret of type kubernetes.io/basic-auth: super users, whom no request changes. Changed files apply within a
    second.
    """
    own_credentials_path: str = setting("", "innerClientCredentialsPath")
    """Such a folder, with the credentials for the brokers' own requests, instead of
    ``innerClientAuthenticationCredentials``; its user is a super user, too.
    """
    demand_full_signature: bool = setting(False, "demandFullSignature", parse=parse_bool)
    """Require full signatures (:mod:`raptormq.protocol.full_signature`), which Apache's clients do not send."""
    full_signature_window_ms: int = setting(60_000, "fullSignatureWindow", parse=integer(1_000, 3_600_000))
    """Largest difference between the time of a full signature and this server's clock, milliseconds."""

    def __post_init__(self) -> None:
        """Check combinations of settings.

        Raises:
            ConfigError: authorization or full signatures are on without authentication.
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
        """Whether access control is on."""
        return self.authentication or self.authorization

    @property
    def user_folders(self) -> tuple[Path, ...]:
        """The folders of ``superUserPaths`` and ``innerClientCredentialsPath``, each once."""
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
