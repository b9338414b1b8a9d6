"""Checks full signatures (:mod:`raptormq.protocol.full_signature`): present, made for this request, recent and not used
before.

Within the time window a replayed request is recognized by its session. A session belongs to the connection on which it
first came, and its numbers only grow. Sessions are kept until none of their requests is within the window. A restarted
server has no sessions, nor has another server with the same users.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.full_signature import FULL_SIGNATURE, SignatureStamp, read_full_signature
from raptormq.security.users import denied

MAX_SESSIONS = 200_000
"""Maximum number of sessions, of open and of recently closed connections (about 300 bytes each)."""


@dataclass(slots=True)
class _Session:
    connection: Hashable | None
    """None after the connection has closed."""
    number: int


class FullSignatures:
    """Checks the requests of one server. ``clock`` returns milliseconds since 1970."""

    def __init__(self, window_ms: int, clock: Callable[[], int]) -> None:
        self._window_ms = window_ms
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[Hashable, str] = {}
        self._ended: deque[tuple[int, str]] = deque()

    def check(self, connection: Hashable, request: RemotingCommand, secret_key: str) -> None:
        """Check that the request is fully signed with ``secret_key``, within the time window and for the first time.

        Raises:
            Refused: it is not (code 16).
        """
        text = request.ext_fields.get(FULL_SIGNATURE)
        if text is None:
            raise denied(
                "the full signature is missing: this server demands it (demandFullSignature), and clients of "
                "RaptorMQ send it, those of Apache RocketMQ do not."
            )
        given = read_full_signature(text)
        if given is None:
            raise denied("the full signature cannot be parsed: its format is not the one of this server.")
        if not given.matches(request, secret_key):
            raise denied("check full signature failed.")
        now = self._clock()
        self._check_time(given.moment.time_ms - now)
        self._check_new(connection, given.moment, now)

    def closed(self, connection: Hashable) -> None:
        """Note that a connection has closed: its session expires once its requests are out of the window."""
        session = self._session_of.pop(connection, None)
        if session is not None:
            self._sessions[session].connection = None
            self._ended.append((self._clock(), session))

    def _check_time(self, ahead_ms: int) -> None:
        if abs(ahead_ms) <= self._window_ms:
            return
        by, window = f"{abs(ahead_ms) / 1000:.1f} s", f"{self._window_ms / 1000:g} s"
        where = f"{by} ahead of" if ahead_ms > 0 else f"{by} behind"
        raise denied(
            f"the full signature has expired: its time is {where} this server's clock, more than {window} "
            "(fullSignatureWindow). Synchronize the clocks, unless this is a replayed request."
        )

    def _check_new(self, connection: Hashable, moment: SignatureStamp, now: int) -> None:
        session = self._sessions.get(moment.session)
        if session is None:
            session = self._begin(connection, moment.session, now)
        if session.connection is not connection or moment.number <= session.number:
            raise denied("the full signature was used before: this is a replayed request.")
        session.number = moment.number

    def _begin(self, connection: Hashable, name: str, now: int) -> _Session:
        if connection in self._session_of:
            raise denied("the full signature is of another session than the ones before it on this connection.")
        # The time of a request may be one window ahead, and is accepted for another window after that.
        while self._ended and self._ended[0][0] + 2 * self._window_ms < now:
            del self._sessions[self._ended.popleft()[1]]
        if len(self._sessions) >= MAX_SESSIONS:
            raise denied(f"more than {MAX_SESSIONS} connections in a short time: try again later.")
        self._session_of[connection] = name
        session = self._sessions[name] = _Session(connection, -1)
        return session
