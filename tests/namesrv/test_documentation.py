"""docs/reference/name-server.md names exactly the served request codes, and only existing settings."""

from __future__ import annotations

import re
from pathlib import Path

from raptormq.config_file import known_keys
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from tests.namesrv.test_access_control import secured
from tests.namesrv.test_service import config_for

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "name-server.md").read_text(encoding="utf-8")


async def test_the_table_of_codes_is_the_table_of_the_router(tmp_path: Path) -> None:
    documented = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE) for code in row.split(",")}
    server = NameServer(config_for(tmp_path, **secured(tmp_path)))
    await server.start()
    served = {int(code) for code in server._router._handlers}
    await server.stop()
    assert documented == served


def test_every_setting_that_is_named_exists() -> None:
    named = set(re.findall(r"`([a-z]+(?:[A-Z][A-Za-z]*)+)(?:=[^`]*)?`", PAGE))
    assert named
    assert named <= known_keys(NameServerConfig)
