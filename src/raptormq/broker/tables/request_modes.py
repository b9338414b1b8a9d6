"""Consumption modes of groups, pull or pop, by topic (``MessageRequestModeManager``, file ``messageRequestMode.json``).

File and wire format::

    {"messageRequestModeMap": {"topic": {"group": {"topic": "topic", "consumerGroup": "group", "mode": "POP",
    "popShareQueueNum": 0}}}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from raptormq.errors import BodyError
from raptormq.files import Files
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.members import object_at

PULL, POP = "PULL", "POP"


class RequestMode(NamedTuple):
    """Consumption mode of a group for a topic. ``share`` is ``popShareQueueNum``."""

    mode: str = PULL
    share: int = 0

    @classmethod
    def from_dict(cls, value: Any) -> RequestMode:
        """Decode a JSON object.

        Raises:
            BodyError: the value is not a request mode.
        """
        try:
            mode = cls(str(value.get("mode") or PULL).upper(), int(value.get("popShareQueueNum") or 0))
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"not a request mode: {value!r:.80}") from error
        if mode.mode not in (PULL, POP):
            raise BodyError(f"unknown request mode {mode.mode:.40}")
        return mode


_Modes = dict[str, dict[str, RequestMode]]


class RequestModeTable:
    """Request modes of one broker, by topic and group."""

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """Load the content of ``messageRequestMode.json``. ``saved`` is None without the file.

        Raises:
            BodyError: the content is not a table of request modes.
        """
        self._modes = _decode(saved) if saved else {}
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change."""
        self._listeners.append(listener)

    def get(self, topic: str, group: str) -> RequestMode:
        """Return the request mode of a group for a topic, by default PULL."""
        return self._modes.get(topic, {}).get(group, RequestMode())

    def put(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set the mode of a group for a topic."""
        self._set(self._modes | {topic: self._modes.get(topic, {}) | {group: mode}})

    def put_topic(self, topic: str, row: Mapping[str, Any] | None) -> None:
        """Replace the modes of a topic by those of another broker, in the format of the file; None removes them.

        Raises:
            BodyError: they are not in this format.
        """
        others = {name: modes for name, modes in self._modes.items() if name != topic}
        self._set(others if row is None else others | {topic: _decode_topic(row)})

    def replace(self, value: Mapping[str, Any]) -> None:
        """Replace all modes by those of another broker, in the format of the file.

        Raises:
            BodyError: they are not in this format.
        """
        self._set(_decode(value))

    def by_topic(self) -> dict[str, dict[str, Any]]:
        """Return the modes of all topics in the format of the file."""
        return {
            topic: {
                group: {
                    "consumerGroup": group, "topic": topic, "mode": mode.mode, "popShareQueueNum": mode.share
                }
                for group, mode in modes.items()
            }
            for topic, modes in self._modes.items()
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"messageRequestModeMap": self.by_topic()}

    def _set(self, modes: _Modes) -> None:
        if modes != self._modes:
            self._modes = modes
            for listener in self._listeners:
                listener()


def request_modes_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of request modes at ``path``."""
    return JsonFile(path, files, key="messageRequestModeMap", without="without it all groups have mode PULL")


def _decode(value: Mapping[str, Any]) -> _Modes:
    table = object_at(value, "messageRequestModeMap")
    return {topic: _decode_topic(object_at(table, topic)) for topic in table}


def _decode_topic(row: Mapping[str, Any]) -> dict[str, RequestMode]:
    return {group: RequestMode.from_dict(mode) for group, mode in row.items()}
