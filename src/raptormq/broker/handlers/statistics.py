"""VIEW_BROKER_STATS_DATA (315): a statistic for the last minute, hour and day (``BrokerStatsData``)."""

from __future__ import annotations

from raptormq.broker.metrics import Statistics
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.topic import ViewStatisticsRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class StatisticsHandlers:
    """Returns statistics of topics, groups and the broker."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.VIEW_BROKER_STATS_DATA, ViewStatisticsRequestHeader, self.view)

    def view(self, _: Connection, command: RemotingCommand, header: ViewStatisticsRequestHeader) -> RemotingCommand:
        """315: return sum, rate and average of a statistic, or code 1 if it does not exist."""
        found = self._statistics.figures(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        names = ("statsMinute", "statsHour", "statsDay")
        body = {name: window._asdict() for name, window in zip(names, found, strict=True)}
        return response_to(command, body=dumps(body))
