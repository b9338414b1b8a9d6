"""Adapters for plain functions as listeners, called in the event loop, in threads or in processes.

    consumer.subscribe("orders", "*", in_executor(handle, ThreadPoolExecutor(20)))
    consumer.subscribe("orders", "*", in_executor(handle, lambda: ProcessPoolExecutor(4)))

A function that runs in a thread or a process cannot be interrupted. A call that is cancelled, by a timeout or because
the consumer stops, therefore ends when the function has ended. Until then its messages are not delivered again, and
their queue is not given up. `asyncio.run` and the program do not end before it either: Python waits for the threads
and processes of executors at its end.

See also: `consumer.listener_call` awaits the result. Java's listeners are plain functions in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future

from raptormq.client.consumer.listener_call import Listener
from raptormq.client.results import ConsumeResult
from raptormq.errors import ClientError
from raptormq.protocol.message import MessageExt

PlainListener = Callable[[list[MessageExt]], ConsumeResult | None]
"""A plain function. It returns `None` or a `ConsumeResult`; after an exception the messages are delivered again."""


def in_loop(function: PlainListener) -> Listener:
    """Return a listener that calls a plain function in the event loop. The function must not block, because the event
    loop runs nothing else meanwhile.

    Raises:
        ClientError: the function cannot be called.
    """
    _require_callable(function)

    async def call(messages: list[MessageExt]) -> ConsumeResult | None:
        return function(messages)

    return call


def in_executor(function: PlainListener, executor: Executor | Callable[[], Executor]) -> Listener:
    """Return a listener that calls a plain function in an executor.

    Args:
        function: for processes a function of a module, because it is pickled with its messages and its result.
        executor: threads or processes, which the application shuts down after the consumer has stopped; or a function
            that returns them, which is called at the first message, and again when a process has ended unexpectedly.
            At most `ConsumerConfig.concurrency` calls run at a time.

    Raises:
        ClientError: the function cannot be called, or `executor` is not an executor.
    """
    _require_callable(function)
    if not isinstance(executor, Executor) and not callable(executor):
        raise ClientError(
            f"the executor must be a concurrent.futures.Executor or a function that returns one, not {executor!r}"
        )
    current: Executor | None = executor if isinstance(executor, Executor) else None

    async def call(messages: list[MessageExt]) -> ConsumeResult | None:
        nonlocal current
        if current is None:
            assert not isinstance(executor, Executor)
            current = executor()
        used = current
        try:
            return await _ended(used.submit(_call, function, messages))
        except BrokenExecutor:
            if current is used and not isinstance(executor, Executor):
                current = None
            raise

    return call


def _call(function: PlainListener, messages: list[MessageExt]) -> ConsumeResult | None:
    """Call a function in a thread or a process. A `StopIteration`, which no future of asyncio can have, is raised as
    `RuntimeError`, like from a coroutine.
    """
    try:
        return function(messages)
    except StopIteration as error:
        raise RuntimeError("the listener raised StopIteration") from error


async def _ended(running: Future[ConsumeResult | None]) -> ConsumeResult | None:
    """Return the result of a call when it has ended. If this is cancelled, also repeatedly, a call that has begun is
    still waited for, and its result is dropped.
    """
    result = asyncio.wrap_future(running)
    cancelled: asyncio.CancelledError | None = None
    while not result.done():
        try:
            await asyncio.wait([result])
        except asyncio.CancelledError as error:
            cancelled = error
            running.cancel()
    if cancelled is None:
        return result.result()
    if not result.cancelled():
        result.exception()  # asyncio logs errors that nobody has asked for
    try:
        raise cancelled
    finally:
        del cancelled  # its traceback and this frame would reference each other


def _require_callable(function: object) -> None:
    if not callable(function):
        raise ClientError(f"the listener must be a function that takes a list of messages, not {function!r}")
