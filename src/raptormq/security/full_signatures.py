"""Verifies full signatures (:mod:`raptormq.protocol.full_signature`): a request must have a valid, recent and unused
one.

The session in the signature detects replays within the time window. A session belongs to the connection of its first
request, and its sequence numbers increase. The server discards a session when the window of all its requests has ended.
A replay to a restarted server, or to another server with the same users, is not detected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.full_signature import FULL_SIGNATURE, SignatureStamp, read_full_signature
from raptormq.security.users import denied

MAX_SESSIONS = 200_000
"""Maximum number of sessions of open and recently closed connections (about 300 bytes each)."""


@dataclass(slots=True)
class _Session:
    connection: Hashable | None
    """The connection of the session; None after the connection was closed."""
    number: int


class FullSignatures:
    """Verifies the requests to one server. ``clock`` returns ms since 1970."""

    def __init__(self, window_ms: int, clock: Callable[[], int]) -> None:
        self._window_ms = window_ms
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[Hashable, str] = {}
        self._ended: deque[tuple[int, str]] = deque()

    def check(self, connection: Hashable, request: RemotingCommand, secret_key: str) -> None:
        """Verify the full signature of a request with ``secret_key``.

        Raises:
            Refused: code 16 if the signature is missing, invalid, outside the time window, or used before.
        """
        text = request.ext_fields.get(FULL_SIGNATURE)
        if text is None:
            raise denied(
                "the full signature is missing: this server requires it (demandFullSignature). RaptorMQ clients send "
                "it, Apache RocketMQ clients do not."
            )
        given = read_full_signature(text)
        if given is None:
            raise denied("the full signature cannot be parsed: this server does not support its format.")
        if not given.matches(request, secret_key):
            raise denied("check full signature failed.")
        now = self._clock()
        self._check_time(given.moment.time_ms - now)
        self._check_new(connection, given.moment, now)

    def closed(self, connection: Hashable) -> None:
        """Schedule the expiry of the session of a closed connection."""
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
            f"the full signature has expired: its time is {where} this server's clock; the limit is {window} "
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
            raise denied("the full signature has another session than earlier requests of this connection.")
        # The time of a request may be one window ahead of the clock, and is accepted for one more window.
        while self._ended and self._ended[0][0] + 2 * self._window_ms < now:
            del self._sessions[self._ended.popleft()[1]]
        if len(self._sessions) >= MAX_SESSIONS:
            raise denied(f"the limit of {MAX_SESSIONS} recent connections is reached: retry later.")
        self._session_of[connection] = name
        session = self._sessions[name] = _Session(connection, -1)
        return session
