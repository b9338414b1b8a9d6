"""UPDATE_BROKER_CONFIG (25): changes settings at run time (``AdminBrokerProcessor``)."""

from __future__ import annotations

from raptormq.broker.config import IGNORED_KEYS, BrokerConfig, RunningConfig
from raptormq.broker.tables import ChangeBarrier
from raptormq.config_file import clamp_warnings, parse_properties
from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

logger = get_logger(__name__)


class SettingsHandlers:
    """Changes the settings of a running broker."""

    def __init__(self, config: RunningConfig, barrier: ChangeBarrier) -> None:
        self._config = config
        self._barrier = barrier

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.UPDATE_BROKER_CONFIG, None, self.update)

    async def update(self, connection: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """25: change all settings of the body (``key=value`` lines), or none.

        The remark of the response lists the keys that take effect at the next start, values that are replaced by the
        limit of their range, and the keys without effect.
        """
        try:
            pairs = parse_properties(command.body.decode("utf-8"))
            if self._config.forbidden(pairs):
                raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            if not pairs:
                return response_to(command)
            logger.info("%s changes settings: %s", connection.peer_name, ", ".join(sorted(pairs)))
            waiting = self._config.update(pairs)
        except (ConfigError, UnicodeDecodeError) as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        await self._barrier.registered()
        remarks = []
        if waiting:
            remarks.append(f"effective at the next start: {', '.join(sorted(waiting))}")
        remarks += clamp_warnings(BrokerConfig, pairs)
        if idle := pairs.keys() & IGNORED_KEYS:
            remarks.append(f"stored, but without effect in this broker: {', '.join(sorted(idle))}")
        return response_to(command, remark="; ".join(remarks) or None)
