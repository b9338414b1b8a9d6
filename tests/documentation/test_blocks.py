"""The command blocks of the pages and their comments: who executes each of them, and how a session does it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.documentation.blocks import PAGES, ROOT, BadComment, Block, blocks_of, parse
from tests.documentation.session import BlockFailed, Session, programs_of
from tests.documentation.spark_pages import SPARK_PAGES

COMMANDS = [block for page in PAGES for block in blocks_of(page) if block.file is None]
TIMEOUT_S = 60.0


def test_number_of_blocks_that_are_never_executed_is_stated_for_each_reason() -> None:
    assert Counter(block.reason for block in COMMANDS if block.reason) == {"registry": 3, "suite": 1, "fragment": 6}


def test_number_of_blocks_is_stated_for_each_suite() -> None:
    suites = Counter(
        "e2e" if block.in_e2e else "spark" if block.page in SPARK_PAGES else "client"
        for block in COMMANDS
        if block.reason is None
    )
    assert suites == {"client": 52, "spark": 2, "e2e": 11}


def test_every_block_that_needs_kubernetes_is_executed_by_e2e() -> None:
    executed = {call for file in (ROOT / "e2e").glob("*.py") for call in documented_by(file)}
    assert executed == {(block.page, block.section) for block in COMMANDS if block.in_e2e}


def documented_by(file: Path) -> set[tuple[str, str]]:
    """Return page and section of the calls of `documented.execute` in a module; names stand for texts of e2e."""
    calls = [
        (ast.unparse(node.args[1]), ast.unparse(node.args[2]))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "documented.execute"
    ]
    texts = dict(
        re.findall(r'^ *(\w+) = ("docs/[\w/.-]+")$', (ROOT / "e2e" / "brokers.py").read_text("utf-8"), re.MULTILINE)
        + re.findall(r'^ *(\w+) = ("docs/[\w/.-]+")$', file.read_text(encoding="utf-8"), re.MULTILINE)
    )
    return {(ast.literal_eval(texts.get(page, page)), ast.literal_eval(section)) for page, section in calls}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language(page: str) -> None:
    fences = re.findall(r"^ *```(\S*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert set(fences[::2]) <= {"sh", "console", "python", "properties", "yaml", "json", "sql", "text"}
    assert set(fences[1::2]) <= {""}


def test_programs_that_run_alone_are_well_typed(tmp_path: Path) -> None:
    alone = [
        block
        for block in COMMANDS
        if block.language == "python"
        and block.runs_here
        and block.page not in SPARK_PAGES
        and not block.arguments("pytest")
    ]
    for number, block in enumerate(alone):
        (tmp_path / f"program_{number}.py").write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    places = ["--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    finished = subprocess.run([*command, *places], check=False, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert finished.returncode == 0, finished.stdout


PAGE = """\
# Orders

<!-- test: first
mkdir shop
-->
<!-- test: replaces NAME => shop -->
<!-- test: prints orders -->
```sh
cd NAME
echo the orders
```

```console
$ echo 17 books of shop-3
4 books of  shop-12
```
"""


def blocks(text: str) -> list[Block]:
    return list(parse("orders.md", text))


def executed(text: str, folder: Path) -> None:
    session = Session(folder)
    session.add(programs_of(blocks(text)))
    session.execute(TIMEOUT_S)


def test_block_has_its_place_and_its_comments() -> None:
    first, second = blocks(PAGE)
    assert (first.place, first.section, first.commands) == ("orders.md:8", "Orders", "cd shop\necho the orders\n")
    assert first.arguments("first") == ["mkdir shop"]
    assert (second.commands, second.output) == ("echo 17 books of shop-3", ["4 books of  shop-12"])


@pytest.mark.parametrize(
    "text",
    [
        "<!-- test: prnts a -->\n```sh\n```\n",
        "<!-- test: not run: laziness -->\n```sh\n```\n",
        "<!-- test: prints a -->\ntext\n",
        "<!-- test: prints a -->\n",
        "<!-- test: prints a -->\n```yaml\n```\n",
    ],
)
def test_comment_that_has_no_effect_is_refused(text: str) -> None:
    with pytest.raises(BadComment, match=r"orders\.md"):
        blocks(text)


def test_text_to_replace_must_exist() -> None:
    (block,) = blocks("<!-- test: replaces b => c -->\n```sh\na\n```\n")
    with pytest.raises(BadComment, match="there is no 'b' to replace"):
        _ = block.commands


def test_blocks_run_in_one_shell_in_order(tmp_path: Path) -> None:
    executed(PAGE, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "failure"),
    [
        ("echo the orders", "false", r"orders.md:8 ended with 1"),
        ("the orders", "nothing", r"orders.md:8 does not print 'orders'"),
        ("4 books", "4 pens", r"orders.md:13 does not print a line like '4 pens of  shop-12'"),
        ("mkdir shop", "true", r"orders.md:8 ended with 1"),
    ],
)
def test_session_fails_at_the_block_that_does_not_do_what_the_page_says(
    tmp_path: Path, old: str, new: str, failure: str
) -> None:
    assert old in PAGE
    with pytest.raises(BlockFailed, match=failure):
        executed(PAGE.replace(old, new), tmp_path)


def test_block_that_serves_runs_until_the_page_ends(tmp_path: Path) -> None:
    executed(
        "<!-- test: serves ^ready -->\n"
        "```sh\ntrap 'echo stopped >end; exit' TERM\necho ready\nwhile true; do sleep 0.1; done\n```\n"
        "```sh\n[ ! -e end ]\n```\n",
        tmp_path,
    )
    assert (tmp_path / "home" / "end").read_text(encoding="utf-8") == "stopped\n"


def test_block_that_should_serve_and_ends_fails_the_session(tmp_path: Path) -> None:
    with pytest.raises(BlockFailed, match=r"orders\.md:2 ended with 1:\nno port"):
        executed("<!-- test: serves ^ready -->\n```sh\necho no port; exit 2\n```\n", tmp_path)


def test_program_continues_the_one_before(tmp_path: Path) -> None:
    executed(
        "```python\na = 17\n```\n<!-- test: continues -->\n<!-- test: prints 18 -->\n```python\nprint(a + 1)\n```\n",
        tmp_path,
    )
