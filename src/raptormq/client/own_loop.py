"""The event loop that a client was started in, and belongs to: its connections and tasks are of no use in another.

Neighbours: `instance` knows the loop; producers and consumers ask before they use it. Source: none, Java has threads.
"""

from __future__ import annotations

import asyncio

from raptormq.errors import ClientClosed


def require_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Look whether `loop` is the one that runs.

    Raises:
        ClientClosed: it is not.
    """
    if asyncio.get_running_loop() is not loop:
        state = "has ended" if loop.is_closed() else "is not this one"
        raise ClientClosed(
            f"the client was started in an event loop that {state} (each asyncio.run has its own): "
            "start, use and close it in one"
        )
