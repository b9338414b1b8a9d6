"""Settings from the environment, and errors of the command."""

from __future__ import annotations

import pytest

from raptormq.errors import ConfigError
from raptormq_operator import __main__ as command
from raptormq_operator.settings import Settings


def test_defaults() -> None:
    settings = Settings.from_environment({"RAPTORMQ_IMAGE": "raptormq:1", "POD_NAME": "me"})
    assert (settings.image, settings.identity, settings.namespace) == ("raptormq:1", "me", "default")
    assert (settings.port, settings.log_level, settings.watch_namespaces) == (8080, "INFO", ())
    assert (settings.dns_domain, settings.lease_name) == ("cluster.local", "raptormq-operator")


def test_each_installation_has_a_lease_of_its_own() -> None:
    assert Settings.from_environment({"RAPTORMQ_IMAGE": "x", "LEASE_NAME": "second"}).lease_name == "second"


def test_namespaces_are_separated_by_commas() -> None:
    settings = Settings.from_environment({"RAPTORMQ_IMAGE": "x", "WATCH_NAMESPACES": "shop, bank,,shop"})
    assert settings.watch_namespaces == ("shop", "bank")


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({}, "RAPTORMQ_IMAGE"),
        ({"RAPTORMQ_IMAGE": "x", "HTTP_PORT": "http"}, "HTTP_PORT"),
        ({"RAPTORMQ_IMAGE": "x", "HTTP_PORT": "0"}, "HTTP_PORT"),
        ({"RAPTORMQ_IMAGE": "x", "LOG_LEVEL": "LOUD"}, "LOG_LEVEL"),
        ({"RAPTORMQ_IMAGE": "x", "LOG_FORMAT": "xml"}, "LOG_FORMAT"),
    ],
)
def test_a_bad_setting_is_named(environment: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Settings.from_environment(environment)


def test_the_command_complains_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("RAPTORMQ_IMAGE", raising=False)
    assert command.main([]) == 2
    assert capsys.readouterr().err == (
        "raptormq_operator: RAPTORMQ_IMAGE must name the image of brokers and name servers\n"
    )


def test_command_refuses_other_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["uninstal"]) == 2
    assert capsys.readouterr().err == "raptormq_operator: the only argument is 'uninstall', not 'uninstal'\n"
