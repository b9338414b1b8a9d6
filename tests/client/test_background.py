"""Background tasks: what is logged at their end."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client.background import background


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_a_program_that_ends_in_a_handler_has_no_bug(end: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    async def handler() -> None:
        raise end

    async def main() -> None:
        background(handler(), "a listener")
        await asyncio.Event().wait()

    with pytest.raises(type(end)):
        asyncio.run(main())
    assert caplog.text == ""


@pytest.mark.parametrize("error", [ValueError("as planned"), BaseExceptionGroup("as planned", [BaseException()])])
def test_an_error_that_nobody_expects_is_logged(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    async def handler() -> None:
        raise error

    async def main() -> None:
        await asyncio.wait([background(handler(), "a listener")])

    asyncio.run(main())
    assert "a listener ended unexpectedly, which is a bug" in caplog.text
