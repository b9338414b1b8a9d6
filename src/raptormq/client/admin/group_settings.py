"""Settings of a consumer group as brokers keep them. No I/O.

See also: `admin.client` asks the brokers. Source: RocketMQ `SubscriptionGroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from raptormq.client.settings import Limits, check_setting
from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import flag_at

_MaxRetries = Annotated[int, Limits(1_000_000, zero=True)]
_RetryQueues = Annotated[int, Limits(1_024)]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group at a broker."""

    consume: bool = True
    """Whether members may consume."""
    broadcast: bool = True
    """Whether members may consume in broadcasting mode."""
    max_retries: int = 16
    """Number of deliveries after the first one, before a message becomes a dead letter."""
    retry_queues: int = 1
    """Number of queues of the retry topic."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> GroupSettings:
        """Decode the JSON object of a group. Raises `BodyError`."""
        try:
            return cls(
                flag_at(value, "consumeEnable", True),
                flag_at(value, "consumeBroadcastEnable", True),
                int(value.get("retryMaxTimes", 16)),
                int(value.get("retryQueueNums", 1)),
            )
        except (TypeError, ValueError) as error:
            raise BodyError(f"not the settings of a consumer group: {value!r:.80}") from error

    @staticmethod
    def changes(
        consume: bool | None, broadcast: bool | None, max_retries: int | None, retry_queues: int | None
    ) -> dict[str, Any]:
        """Return the members of the JSON object that change; None keeps a value. Raises `ConfigError`."""
        check_setting("consume", consume, bool | None)
        check_setting("broadcast", broadcast, bool | None)
        check_setting("max_retries", max_retries, _MaxRetries | None)
        check_setting("retry_queues", retry_queues, _RetryQueues | None)
        given = {
            "consumeEnable": consume,
            "consumeBroadcastEnable": broadcast,
            "retryMaxTimes": max_retries,
            "retryQueueNums": retry_queues,
        }
        return {name: value for name, value in given.items() if value is not None}
