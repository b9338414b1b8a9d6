"""TLS settings of the clients of this process, from environment variables. (RocketMQ uses JVM options.)

========================== =============================================================================
``RAPTORMQ_TLS``           ``true`` or ``false``; default: true if any other variable but the password is set
``RAPTORMQ_TLS_CA``        CA certificates that verify the servers' certificates
``RAPTORMQ_TLS_CERT``      file of the client's own certificate chain
``RAPTORMQ_TLS_KEY``       file of its key
``RAPTORMQ_TLS_PASSWORD``  password of the key
``RAPTORMQ_TLS_CHECK_NAME`` ``true``: servers' certificates must match the names that they are reached by
``RAPTORMQ_TLS_CONFIG``    RocketMQ's ``tls.properties``; the other variables replace its values
========================== =============================================================================

All files except the last are PEM files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from raptormq.config_file import parse_bool, parse_setting, read_properties
from raptormq.transport.tls import ClientTls, client_tls_of

__all__ = ["ClientTls", "tls_from_environment"]

_SWITCH, _CONFIG, _PASSWORD = "RAPTORMQ_TLS", "RAPTORMQ_TLS_CONFIG", "RAPTORMQ_TLS_PASSWORD"
_CA, _CERT, _KEY, _CHECK_NAME = "RAPTORMQ_TLS_CA", "RAPTORMQ_TLS_CERT", "RAPTORMQ_TLS_KEY", "RAPTORMQ_TLS_CHECK_NAME"


def tls_from_environment(environment: Mapping[str, str] = os.environ) -> ClientTls | None:
    """Return the TLS settings of this process; None if TLS is not configured.

    Raises:
        ConfigError: a value is invalid, or a related value is missing.
    """
    check_name = _flag(environment, _CHECK_NAME)
    given = bool(check_name) or any(environment.get(name) for name in (_CONFIG, _CA, _CERT, _KEY))
    if not (given if (switch := _flag(environment, _SWITCH)) is None else switch):
        return None
    config = environment.get(_CONFIG)
    tls = client_tls_of(read_properties(Path(config))) if config else ClientTls()
    if environment.get(_CA):
        tls = replace(tls, trust_cert_path=environment[_CA], auth_server=True)
    if environment.get(_CERT) or environment.get(_KEY):
        tls = replace(tls, cert_path=environment.get(_CERT, ""), key_path=environment.get(_KEY, ""))
    if environment.get(_PASSWORD):
        tls = replace(tls, key_password=environment[_PASSWORD])
    return replace(tls, check_name=bool(check_name))


def _flag(environment: Mapping[str, str], name: str) -> bool | None:
    text = environment.get(name)
    return bool(parse_setting(name, text, parse_bool)) if text else None
