"""What the kernel has taken for a peer that has not taken it itself: SIOCOUTQ of Linux (``tcp(7)``)."""

from __future__ import annotations

import fcntl
import struct
import termios

_INT = struct.Struct("i")


def unacknowledged_bytes(descriptor: int) -> int:
    """Return how many bytes the kernel has for the other end of a socket, which has not acknowledged them; 0 for one
    that is closed.
    """
    try:
        (size,) = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))
    except (OSError, ValueError):
        return 0
    return int(size)
