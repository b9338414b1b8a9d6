"""The pages about brokers name exactly the served request codes, and only existing settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raptormq.broker.config.config import BrokerConfig
from raptormq.broker.config.ignored_keys import IGNORED_KEYS
from raptormq.config_file import clamp_warnings, known_keys, live_keys
from raptormq.errors import ConfigError
from raptormq.namesrv.config import NameServerConfig
from raptormq.transport.tls.settings import TLS_KEYS
from tests.broker.harness import assembly_of, running

DOCS = Path(__file__).resolve().parents[2] / "docs"
REQUESTS, SETTINGS, *OTHERS = (
    (DOCS / page).read_text(encoding="utf-8")
    for page in (
        "reference/requests.md",
        "reference/settings.md",
        "explanation/broker.md",
        "guides/security.md",
        "guides/monitoring.md",
        "guides/convert-queues.md",
    )
)
PAGES = "".join((REQUESTS, SETTINGS, *OTHERS))

FIELDS = {
    "attemptId", "isPublished", "maxMsgBytes", "maxMsgNums", "otherPassword", "readQueueNums", "switchTimerEngine",
    "topicId", "withUnreadable",
}  # fmt: skip
"""Names in the pages that are not settings: fields of requests, a command of mqadmin, and a file with the password of a
super user.
"""
FIGURES = {
    "commitLogDiskRatio", "putMessageDistributeTime", "dledgerLastAppendTimeMs", "consumerProgress",
    "remainHowManyDataToFlush",
}  # fmt: skip
"""Names in the pages that are not settings: figures of Apache RocketMQ, and a command of mqadmin."""


async def test_the_table_of_codes_is_the_table_of_the_router(tmp_path: Path) -> None:
    documented = {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", REQUESTS, re.MULTILINE) for code in row.split(",")
    }
    async with running(tmp_path) as broker:
        assembly = assembly_of(broker)
        served = {int(code) for code in (*assembly.router._handlers, *assembly.router._batch_handlers)}
    assert documented == served


def test_every_setting_that_is_named_exists() -> None:
    named = set(re.findall(r"`([a-z]+(?:[A-Z][A-Za-z]*)+)(?:=[^`]*)?`", PAGES)) - FIELDS - FIGURES
    assert named
    named |= set(re.findall(r"`(tls\.[A-Za-z.]+)(?:=[^`]*)?`", PAGES)) - {"tls.properties"}
    assert named <= known_keys(BrokerConfig) | known_keys(NameServerConfig) | IGNORED_KEYS | TLS_KEYS
    assert named >= TLS_KEYS


def test_the_settings_without_effect_are_listed() -> None:
    listed = SETTINGS.split("## Settings without effect")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", listed.split("\n\n", 2)[2])) == IGNORED_KEYS


def test_limits_of_settings_in_the_guide_are_those_of_the_parsers() -> None:
    guide = (DOCS / "guides" / "coming-from-rocketmq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) to (\d+) \| (count|larger|prevent)", guide, re.MULTILINE)
    assert {"maxMessageSize", "diskMaxUsedSpaceRatio"} <= {row[0] for row in rows}
    for key, least, most, effect in rows:
        for value in (int(least), int(most)):
            BrokerConfig.from_pairs({key: str(value)})
            assert clamp_warnings(BrokerConfig, {key: str(value)}) == []
        beyond = {key: str(int(most) + 1)}
        if effect == "prevent":
            with pytest.raises(ConfigError, match=key):
                BrokerConfig.from_pairs(beyond)
        else:
            assert len(clamp_warnings(BrokerConfig, beyond)) == 1


def test_the_settings_that_change_at_once_are_listed() -> None:
    listed = SETTINGS.split("The following settings take effect immediately:")[1].split("All other settings")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == live_keys(BrokerConfig)
