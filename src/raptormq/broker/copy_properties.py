"""Limits the size of the properties of copied messages, and reports dropped properties."""

from __future__ import annotations

from collections.abc import Mapping

from raptormq.broker.metrics import Counters
from raptormq.logs import get_logger
from raptormq.protocol.copied_properties import fit_properties
from raptormq.protocol.properties import LEFT_OUT, MAX_PROPERTIES_BYTES, UNIQUE_KEY, find_property

logger = get_logger(__name__)


class CopyProperties:
    """Counts and logs the properties that :func:`~raptormq.protocol.copied_properties.fit_properties` drops."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def fit(
        self,
        topic: str,
        found: Mapping[str, str],
        needed: Mapping[str, str],
        optional: Mapping[str, str] | None = None,
        *,
        limit: int = MAX_PROPERTIES_BYTES,
    ) -> str:
        """Return the properties of a copy for ``topic`` in text form. For the other parameters see ``fit_properties``.

        Raises:
            MessageError: the needed properties alone are longer than ``limit``.
        """
        text, left_out = fit_properties(found, needed, optional, limit)
        if left_out:
            self._counters.copies_shortened += 1
            logger.warning(
                "the properties of the copy of message %r for topic %s exceed the limit: dropped %d"
                " properties; dropped so far: %r",
                found.get(UNIQUE_KEY, ""),
                topic,
                len(left_out),
                find_property(text, LEFT_OUT),
            )
        return text
