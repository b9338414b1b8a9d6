"""Transactions of the Python producer with a real broker: committed, rolled back, decided by a check, and across a
restart.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from raptormq.client import (
    ClientConfig,
    Delay,
    Message,
    MessageExt,
    MessageQueue,
    PullConsumer,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from raptormq.client.producer.transactions import TransactionChecks
from raptormq.errors import ClientClosed, ClientError, MessageError
from tests.client.embedded_cluster import Cluster

QUICK = {"transactionTimeOut": "100", "transactionCheckInterval": "100", "transactionCheckMax": "1000"}
NEVER = {"transactionTimeOut": "3600000"}


async def committed(_: Message) -> None:
    """A successful local transaction."""


async def left_open(_: Message) -> TransactionState:
    return TransactionState.UNKNOWN


async def rolled_back(_: Message) -> TransactionState:
    return TransactionState.ROLLBACK


async def no_idea(_: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def commit_when_asked(_: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def delivered(cluster: Cluster, wait_ms: int = 0) -> list[MessageExt]:
    async with PullConsumer(name_servers=cluster.name_servers) as consumer:
        pulled = await consumer.pull(MessageQueue("t", "broker-0", 0), 0, 32, suspend_ms=wait_ms)
    return pulled.messages()


async def test_a_commit_delivers_and_a_rollback_does_not(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **NEVER) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", no_idea, name_servers=cluster.name_servers) as producer:
            large = bytes(10_000)
            first = await producer.send_in_transaction(Message("t", large, "A", ("k",)), committed)
            second = await producer.send_in_transaction(Message("t", b"no"), rolled_back)
            third = await producer.send_in_transaction(Message("t", b"open"), left_open)
            assert [(each.state, each.broker_knows) for each in (first, second, third)] == [
                (TransactionState.COMMIT, True),
                (TransactionState.ROLLBACK, True),
                (TransactionState.UNKNOWN, False),
            ]
            [message] = await delivered(cluster)
            assert (message.body, message.tags, message.keys) == (large, "A", ("k",))
            assert message.message_id == first.sent.message_id


async def test_the_transaction_runs_while_the_message_waits(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **NEVER) as cluster:
        await cluster.create_topic("t", 1)
        seen: list[int] = []

        async def look(_: Message) -> None:
            seen.append(len(await delivered(cluster)))

        async with TransactionProducer("p", no_idea, name_servers=cluster.name_servers) as producer:
            await producer.send_in_transaction(Message("t", b"x"), look)
        assert (seen, len(await delivered(cluster))) == ([0], 1)


async def test_an_error_of_the_transaction_leaves_it_to_the_check(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        asked: list[MessageExt] = []

        async def check(message: MessageExt) -> TransactionState:
            asked.append(message)
            if len(asked) == 1:
                raise RuntimeError("the database is away")
            return TransactionState.UNKNOWN if len(asked) == 2 else TransactionState.COMMIT

        async def fail(_: Message) -> None:
            raise ValueError("was it stored?")

        async with TransactionProducer("p", check, name_servers=cluster.name_servers) as producer:
            with pytest.raises(ValueError, match="was it stored"):
                await producer.send_in_transaction(Message("t", b"x", keys=("k",)), fail)
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"
        assert len(asked) >= 3
        assert {(each.topic, each.body, each.keys, each.queue.queue_id) for each in asked} == {("t", b"x", ("k",), 0)}


async def test_a_producer_that_comes_later_is_asked_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", no_idea, name_servers=cluster.name_servers) as producer:
            await producer.send_in_transaction(Message("t", b"x"), left_open)
        await cluster.stop_broker(0)
        await cluster.start_broker(0)
        later = TransactionProducer("p", commit_when_asked, topics=["t"], name_servers=cluster.name_servers)
        async with later:
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"


async def test_what_cannot_be_in_a_transaction_is_refused_before_it_runs(tmp_path: Path) -> None:
    ran = asyncio.Event()

    async def execute(_: Message) -> None:
        ran.set()

    async with Cluster(tmp_path) as cluster:
        producer = TransactionProducer("p", no_idea, name_servers=cluster.name_servers)
        async with producer:
            for message in (
                Message("t", b"x", properties={"DELAY": "1"}),
                Message("t", b"x", delay=Delay.by(1)),
                Message("no topic", b"x"),
                cast("Message", b"x"),
            ):
                with pytest.raises(MessageError):
                    await producer.send_in_transaction(message, execute)
        with pytest.raises(ClientClosed):
            await producer.send_in_transaction(Message("t", b"x"), execute)
    assert not ran.is_set()


def plain(_: object) -> None:
    """Annotated with None as the result, so it cannot be awaited."""


@pytest.mark.parametrize("wrong", [None, 5, plain])
def test_a_check_must_be_an_async_function(wrong: Any) -> None:
    with pytest.raises(ClientError, match="the check of transactions"):
        TransactionProducer("p", wrong)


async def test_what_is_no_local_transaction_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **NEVER) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", no_idea, name_servers=cluster.name_servers) as producer:
            wrong: Any
            for wrong in (None, "commit", plain):
                with pytest.raises(ClientError, match="a local transaction"):
                    await producer.send_in_transaction(Message("t", b"x"), wrong)
            sent = await producer.send_in_transaction(Message("t", b"right"), committed)
            assert sent.sent.queue_offset == 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("commit", "must return a TransactionState or None, not 'commit'"),
        (False, "not False"),
        (None, "must be async def"),
    ],
)
async def test_an_answer_that_is_none_leaves_the_transaction_to_the_check(
    tmp_path: Path, answer: Any, says: str
) -> None:
    async def returns_it(_: Message) -> Any:
        return answer

    def passes_it_on(_: Message) -> Any:
        return answer

    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", commit_when_asked, name_servers=cluster.name_servers) as producer:
            with pytest.raises(ClientError, match=says):
                await producer.send_in_transaction(Message("t", b"x"), passes_it_on if answer is None else returns_it)
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"


async def test_a_check_that_returns_something_else_is_named_and_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = ["commit", None, TransactionState.COMMIT]

    async def check(_: MessageExt) -> Any:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", check, name_servers=cluster.name_servers) as producer:
            await producer.send_in_transaction(Message("t", b"x"), left_open)
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"
    for said in ("'commit'", "None"):
        assert f"the check of transactions must return a TransactionState, not {said}" in caplog.text


class Unusual(BaseException):
    """An error that is no `Exception`, like that of `pytest.fail`."""


@pytest.mark.parametrize("error", [Unusual, asyncio.CancelledError])
async def test_a_check_that_fails_in_any_way_is_logged_and_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    checks = 0

    async def check(_: MessageExt) -> TransactionState:
        nonlocal checks
        checks += 1
        if checks == 1:
            raise error
        return TransactionState.COMMIT

    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", check, name_servers=cluster.name_servers) as producer:
            await producer.send_in_transaction(Message("t", b"x"), left_open)
            assert [message.body for message in await delivered(cluster, wait_ms=20_000)] == [b"x"]
    assert re.search("the check of transaction .* of group p failed", caplog.text)


async def test_a_transaction_producer_takes_the_settings_of_batches_too(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        server = cluster.name_servers
        producer = TransactionProducer("p", no_idea, name_servers=server, auto_batch=True, batch_max_delay_ms=30_000)
        async with producer:
            waiting = producer.submit(Message("t", b"waits"))
            result = await producer.send_in_transaction(Message("t", b"does not"), committed)
            assert not waiting.done()
        assert (result.state, (await waiting).status) == (TransactionState.COMMIT, SendStatus.SEND_OK)


async def test_a_second_producer_that_comes_and_goes_leaves_the_first_one_its_questions(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        shared = ClientConfig(name_servers=cluster.name_servers)
        async with TransactionProducer("p", commit_when_asked, client_config=shared) as producer:
            async with TransactionProducer("p", no_idea, client_config=shared):
                pass
            await producer.send_in_transaction(Message("t", b"x"), left_open)
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"


async def test_a_producer_that_is_closed_during_a_local_transaction_leaves_it_open(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **NEVER) as cluster:
        await cluster.create_topic("t", 1)
        producer = TransactionProducer("p", no_idea, name_servers=cluster.name_servers)
        await producer.start()

        async def close(_: Message) -> None:
            await producer.close()

        result = await producer.send_in_transaction(Message("t", b"x"), close)
        assert (result.state, result.broker_knows) == (TransactionState.COMMIT, False)


class Asked(set[str]):
    """Ids of messages with a running transaction, one of which the broker has checked."""

    def __init__(self) -> None:
        super().__init__()
        self.about_one = asyncio.Event()

    def __contains__(self, message_id: object) -> bool:
        is_one = super().__contains__(message_id)
        if is_one:
            self.about_one.set()
        return is_one


async def test_what_still_runs_is_not_ended_by_a_check_of_another_producer_that_finds_nothing(tmp_path: Path) -> None:
    is_over = False

    async def look_up(_: MessageExt) -> TransactionState:
        return TransactionState.COMMIT if is_over else TransactionState.ROLLBACK

    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        shared = ClientConfig(name_servers=cluster.name_servers)
        first, second = (TransactionProducer("p", look_up, client_config=shared) for _ in range(2))
        async with first, second:
            checks = first._own_instance().shared(TransactionChecks)
            checks.executing = asked = Asked()

            async def slow(_: Message) -> None:
                nonlocal is_over
                async with asyncio.timeout(20):
                    await asked.about_one.wait()
                is_over = True

            await first.send_in_transaction(Message("t", b"x"), slow)
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"


async def test_topics_that_are_not_there_yet_are_looked_for_again(tmp_path: Path) -> None:
    """The name server may have started just before the brokers."""
    async with Cluster(tmp_path, 1, 1, **QUICK, autoCreateTopicEnable="false") as cluster:
        early = TransactionProducer("p", commit_when_asked, topics=["t"], name_servers=cluster.name_servers)
        async with early:
            await asyncio.wait(early._route_lookups, timeout=0.1)
            await cluster.create_topic("t", 1)
            async with TransactionProducer("p", no_idea, name_servers=cluster.name_servers) as other:
                await other.send_in_transaction(Message("t", b"x"), left_open)
            [message] = await delivered(cluster, wait_ms=20_000)
        assert message.body == b"x"


async def test_a_check_that_ignores_its_cancellation_does_not_hold_up_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(_: MessageExt) -> TransactionState:
        called.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        return TransactionState.UNKNOWN

    async with Cluster(tmp_path, 1, 1, **QUICK) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer("p", stubborn, name_servers=cluster.name_servers) as producer:
            result = await producer.send_in_transaction(Message("t", b"x"), left_open)
            await called.wait()
            ending = asyncio.create_task(producer.close())
            await asyncio.wait([ending], timeout=10)
            is_ended = ending.done()
            go_on.set()
            await ending
    assert is_ended
    assert f"stubborn of transaction {result.sent.message_id} ignores its cancellation" in caplog.text
