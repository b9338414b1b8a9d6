"""Judges full signatures (:mod:`raptormq.protocol.full_signature`): that they are there, of this request, of now, and
new.

Within the window of time a request that is sent again is known by its session: that belongs to the connection by which
it came first, and its numbers only grow. Sessions are remembered until none of their requests is within the window.
A server that was started anew remembers none; neither does another one with the same users.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.full_signature import FULL_SIGNATURE, SignatureStamp, read_full_signature
from raptormq.security.users import denied

MAX_SESSIONS = 200_000
"""Connections, open or of the last minutes, whose numbers are remembered (about 300 bytes each)."""


@dataclass(slots=True)
class _Session:
    connection: Hashable | None
    """None when it has ended."""
    number: int


class FullSignatures:
    """Judges the requests of one server. ``clock`` gives milliseconds since 1970."""

    def __init__(self, window_ms: int, clock: Callable[[], int]) -> None:
        self._window_ms = window_ms
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[Hashable, str] = {}
        self._ended: deque[tuple[int, str]] = deque()

    def check(self, connection: Hashable, request: RemotingCommand, secret_key: str) -> None:
        """Raise the refusal (16) of a request that is not fully signed with ``secret_key``, now, for the first time."""
        text = request.ext_fields.get(FULL_SIGNATURE)
        if text is None:
            raise denied(
                "the full signature is missing: this server demands it (demandFullSignature), and clients of "
                "RaptorMQ send it, those of Apache RocketMQ do not."
            )
        given = read_full_signature(text)
        if given is None:
            raise denied("the full signature cannot be read: its form is another one than this server's.")
        if not given.matches(request, secret_key):
            raise denied("check full signature failed.")
        now = self._clock()
        self._check_time(given.moment.time_ms - now)
        self._check_new(connection, given.moment, now)

    def closed(self, connection: Hashable) -> None:
        """Remember the session of a connection that has ended no longer than needed."""
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
            "(fullSignatureWindow). Set the clocks right, if this is no request that is sent again."
        )

    def _check_new(self, connection: Hashable, moment: SignatureStamp, now: int) -> None:
        session = self._sessions.get(moment.session)
        if session is None:
            session = self._begin(connection, moment.session, now)
        if session.connection is not connection or moment.number <= session.number:
            raise denied("the full signature was used before: this request is sent again.")
        session.number = moment.number

    def _begin(self, connection: Hashable, name: str, now: int) -> _Session:
        if connection in self._session_of:
            raise denied("the full signature is of another session than the ones before it on this connection.")
        # A time may be a window ahead, and is good for a window after that.
        while self._ended and self._ended[0][0] + 2 * self._window_ms < now:
            del self._sessions[self._ended.popleft()[1]]
        if len(self._sessions) >= MAX_SESSIONS:
            raise denied(f"more than {MAX_SESSIONS} connections in a short time: try again later.")
        self._session_of[connection] = name
        session = self._sessions[name] = _Session(connection, -1)
        return session
