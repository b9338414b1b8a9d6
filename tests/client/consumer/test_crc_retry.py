"""A body with a wrong CRC is fetched once again, but no other unreadable message."""

from __future__ import annotations

from raptormq.client.consumer.queue_reader import CrcRetry
from raptormq.errors import ChecksumError, RecordError


def test_it_arises_once_for_each_record() -> None:
    crc_retry = CrcRetry()
    wrong = ChecksumError("wrong CRC")
    assert crc_retry.should_retry_crc(0, wrong)
    assert crc_retry.should_retry_crc(0, wrong)  # no second fetch has started
    crc_retry.remember(0)
    assert not crc_retry.should_retry_crc(0, wrong)
    assert crc_retry.should_retry_crc(1, wrong)
    crc_retry.remember(1)
    assert not crc_retry.should_retry_crc(1, wrong)


def test_what_was_sent_like_that_is_not_fetched_again() -> None:
    assert not CrcRetry().should_retry_crc(0, RecordError("cut"))
