"""PROMOTE (31022): manual promotion of a slave to the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raptormq.broker.config import RunningConfig
from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.ha import PromoteRequestHeader, PromoteResponseHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

if TYPE_CHECKING:
    from raptormq.broker.ha import HaSlave

logger = get_logger(__name__)

_MASTER = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}


class PromotionHandlers:
    """Promotes this broker, if it is a slave."""

    def __init__(self, slave: HaSlave | None, config: RunningConfig) -> None:
        self._slave = slave
        self._config = config

    def register(self, router: Router) -> None:
        """Register the request code with the router."""
        router.add(RequestCode.PROMOTE, PromoteRequestHeader, self.promote)

    async def promote(
        self, connection: Connection, command: RemotingCommand, header: PromoteRequestHeader
    ) -> RemotingCommand:
        """Handle 31022: become the master and save the role to the settings file."""
        if self._slave is None:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "this broker is not a slave")
        logger.warning("%s has requested the promotion of this slave", connection.peer_name)
        try:
            ends = await self._slave.promote(self._save_role, force=header.force)
        except ConfigError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return response_to(command, header=PromoteResponseHeader(*ends))

    def _save_role(self) -> None:
        self._config.update(_MASTER)
