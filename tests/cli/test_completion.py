"""Shell completion of commands, options, topics and groups."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.conftest import RAPTORMQ, Serving
from tests.cli.secured import ROOT, ROOT_PASSWORD, Secured

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def completions(*words: str, namesrv: str = "127.0.0.1:1") -> list[str]:
    """Return the completions of the last word in bash."""
    line = " ".join(words)
    environment = os.environ | {
        "_RAPTORMQ_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "NAMESRV_ADDR": namesrv,
    }
    done = subprocess.run([RAPTORMQ], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert completions("raptormq", "to") == ["topic"]
    assert completions("raptormq", "topic", "de") == ["delete", "describe"]
    assert "--no-follow" in completions("raptormq", "consume", "--no")
    assert completions("raptormq", "group", "reset", "g", "t", "--y") == ["--yes"]


def test_names_of_topics_and_groups_are_completed(raptormq: Run, dev_server: Serving) -> None:
    servers = dev_server.address("namesrv")
    for topic in ("completed-a", "completed-b", "incomplete"):
        assert raptormq("topic", "create", topic, namesrv=servers).returncode == 0
    assert raptormq("consume", "completed-a", "--no-follow", "--group", "complete-g", namesrv=servers).returncode == 0
    assert completions("raptormq", "consume", "completed", namesrv=servers) == ["completed-a", "completed-b"]
    assert completions("raptormq", "topic", "delete", "incom", namesrv=servers) == ["incomplete"]
    assert completions("raptormq", "group", "describe", "complete", namesrv=servers) == ["complete-g"]
    by_option = completions("raptormq", "consume", "-n", servers, "completed-")
    assert by_option == ["completed-a", "completed-b"]


def test_an_unreachable_cluster_completes_no_name_and_says_nothing() -> None:
    assert completions("raptormq", "consume", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, raptormq: Run) -> None:
    done = raptormq("completion", shell)
    assert done.returncode == 0
    assert f"_RAPTORMQ_COMPLETE={shell}_complete" in done.stdout.decode()


def test_bash_takes_the_script() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        f'PATH="{os.path.dirname(RAPTORMQ)}:$PATH"; source <(raptormq completion bash); '
        "COMP_WORDS=(raptormq pro); COMP_CWORD=1; _raptormq_completion raptormq; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("produce\n", 0), done.stderr


def test_users_brokers_and_settings_are_completed(secured: Secured) -> None:
    servers = secured.name_servers
    signed = ["-n", servers, "--access-key", ROOT, "--secret-key", ROOT_PASSWORD]
    secured.create("completed-user")
    assert completions("raptormq", "user", "show", *signed, "completed-") == ["completed-user"]
    assert completions("raptormq", "acl", "create", *signed, "completed-") == ["completed-user"]
    settings = ("raptormq", "cluster", "settings")
    assert completions(*settings, "show", "brok", namesrv=servers) == ["broker-a"]
    assert completions(*settings, "show", "broker-a", "fileReserved", namesrv=servers) == ["fileReservedTime"]
    assert completions(*settings, "set", "broker-a", "fileReserved", namesrv=servers) == ["fileReservedTime="]
    assert completions("raptormq", "user", "show", "completed-", namesrv=servers) == []  # not signed
