"""Queries and changes of the settings: requests 318 and 319."""

from __future__ import annotations

from raptormq.config_file import parse_properties
from raptormq.errors import ConfigError
from raptormq.namesrv.config import warnings_for
from raptormq.namesrv.running_config import RunningConfig
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class SettingsHandlers:
    """Reads and updates a :class:`~raptormq.namesrv.running_config.RunningConfig`."""

    def __init__(self, config: RunningConfig) -> None:
        self._config = config

    def add_to(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.UPDATE_NAMESRV_CONFIG, None, self.update)
        router.add(RequestCode.GET_NAMESRV_CONFIG, None, self.get)

    def update(self, _peer: Connection, request: RemotingCommand, _header: None) -> RemotingCommand:
        """318 (UPDATE_NAMESRV_CONFIG): change all settings in the body (``key=value`` lines), or none."""
        try:
            pairs = parse_properties(request.body.decode("utf-8"))
            if forbidden := self._config.forbidden(pairs):
                remark = f"Can not update config in black list: {', '.join(forbidden)}"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
            if unknown := warnings_for(pairs):
                raise Refused(ResponseCode.INVALID_PARAMETER, unknown[0])
            if pairs:
                self._config.update(pairs)
        except (ConfigError, UnicodeDecodeError) as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return response_to(request)

    def get(self, _peer: Connection, request: RemotingCommand, _header: None) -> RemotingCommand:
        """319 (GET_NAMESRV_CONFIG): return all settings as ``key=value`` lines."""
        return response_to(request, body=self._config.text().encode("utf-8"))
