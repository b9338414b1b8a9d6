"""The command blocks of README, the tutorials and the guides, and the comments that say how they are tested.

A command block is a fenced block of the shell or of Python. What its test needs beyond the text stands before it, in
comments that no reader of the page sees:

    <!-- test: first                 commands that a reader has executed before: a broker runs, a topic exists
    serve ^ready raptormq dev
    -->
    <!-- test: names                 a program with names that the block uses: they stand elsewhere on the page
    spark = SparkSession.builder.getOrCreate()
    -->
    <!-- test: serves ^ready -->      the block does not end; the next one begins when grep finds this in its output
    <!-- test: prints 17 books -->   the output has this text
    <!-- test: replaces A => B -->   what a reader adapts, or types at a prompt
    <!-- test: continues -->         a program goes on with the names of the program before, and is executed with it
    <!-- test: pytest -->            the block is a module of tests
    <!-- test: file broker.conf -->  the block, in any language, is a file in the folder of the session
    <!-- test: in e2e -->            the block needs Kubernetes; e2e executes it (`e2e.documented`)
    <!-- test: not run: registry --> the block cannot run in a test, for one of `REASONS`

A line of a `console` block that begins with a dollar sign is a command, and the others are its output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    *(
        str(path.relative_to(ROOT))
        for folder in ("tutorials", "guides")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
)
LANGUAGES = ("sh", "console", "python", "sql")
"""Languages of command blocks. Blocks in other languages are files, output and drawings."""
REASONS = {
    "fragment": "it is a part of a job of Spark, and uses names and checkpoints of the rest",
    "registry": "it needs packages or images of a registry",
    "suite": "it runs whole test suites",
}
KEYWORDS = ("first", "names", "file", "serves", "prints", "replaces", "continues", "pytest", "in e2e", "not run:")

_FENCE = re.compile(r"( *)```(\S*)")
_COMMENT = re.compile(r"<!-- test: (.*)", re.DOTALL)


class BadComment(Exception):
    """A comment of a test that cannot be understood. The message has the page and the line."""


@dataclass(frozen=True)
class Comment:
    """A comment of a test: a keyword, and what follows it."""

    keyword: str
    argument: str


@dataclass(frozen=True)
class Block:
    """A command block of a page."""

    page: str
    line: int
    section: str
    language: str
    text: str
    comments: tuple[Comment, ...]

    @property
    def place(self) -> str:
        """The page and the line of the block."""
        return f"{self.page}:{self.line}"

    def arguments(self, keyword: str) -> list[str]:
        """Return what follows a keyword, in the order of the comments."""
        return [comment.argument for comment in self.comments if comment.keyword == keyword]

    @property
    def file(self) -> str | None:
        """The name of the file that the block is; None for commands and programs."""
        return next(iter(self.arguments("file")), None)

    @property
    def in_e2e(self) -> bool:
        """Whether e2e executes the block."""
        return bool(self.arguments("in e2e"))

    @property
    def reason(self) -> str | None:
        """The reason for which the block is not executed in any test; None if it is executed."""
        return next(iter(self.arguments("not run:")), None)

    @property
    def runs_here(self) -> bool:
        """Whether the session of the page executes the block."""
        return self.reason is None and not self.in_e2e

    def adapted(self, text: str) -> str:
        """Return a text of the block, as a reader would adapt it.

        Raises:
            BadComment: The text to replace is not in the block.
        """
        for argument in self.arguments("replaces"):
            old, new = argument.split(" =>", 1)
            if old not in self.text:
                raise BadComment(f"{self.place}: there is no {old!r} to replace")
            text = text.replace(old, new.strip())
        return text

    @property
    def commands(self) -> str:
        """The commands or the program of the block, as a reader would adapt them."""
        if self.language != "console":
            return self.adapted(self.text)
        lines = [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]
        return self.adapted("\n".join(lines))

    @property
    def output(self) -> list[str]:
        """The lines that the page shows as the output of the block."""
        if self.language != "console":
            return []
        shown = "\n".join(line for line in self.text.splitlines() if not line.startswith("$ "))
        return [line for line in self.adapted(shown).splitlines() if line]


def blocks_of(page: str) -> list[Block]:
    """Return the command blocks of a page, in order.

    Args:
        page: name of the file, relative to the checkout.

    Raises:
        BadComment: A comment has no known keyword, or no block behind it.
    """
    return list(parse(page, (ROOT / page).read_text(encoding="utf-8")))


def parse(page: str, text: str) -> Iterator[Block]:
    """Yield the command blocks in the text of a page; raises like `blocks_of`."""
    lines = iter(enumerate(text.splitlines(), 1))
    section, comments = "", []
    for number, line in lines:
        if line.lstrip().startswith("<!-- test:"):
            comments.append(_comment(f"{page}:{number}", _until(lines, line, "-->")))
        elif fence := _FENCE.match(line):
            body = _until_fence(lines)
            if fence[2] in LANGUAGES or any(comment.keyword == "file" for comment in comments):
                yield Block(page, number, section, fence[2], dedent("\n".join(body)) + "\n", tuple(comments))
            elif comments:
                raise BadComment(f"{page}:{number}: a test of a block in {fence[2] or 'no language'}")
            comments = []
        elif line.startswith("#"):
            section = line.lstrip("# ")
        elif line.strip() and comments:
            raise BadComment(f"{page}:{number}: a comment of a test without a block behind it")
    if comments:
        raise BadComment(f"{page}: a comment of a test at the end")


def _until(lines: Iterator[tuple[int, str]], first: str, end: str) -> str:
    """Return a text of several lines up to its end."""
    found = [first]
    while end not in found[-1]:
        _, line = next(lines, (0, None))
        if line is None:
            raise BadComment(f"{first} has no end")
        found.append(line)
    return dedent("\n".join(found)).partition(end)[0]


def _until_fence(lines: Iterator[tuple[int, str]]) -> list[str]:
    found: list[str] = []
    for _, line in lines:
        if line.strip() == "```":
            return found
        found.append(line)
    raise BadComment("a block without an end")


def _comment(place: str, text: str) -> Comment:
    match = _COMMENT.match(text.strip())
    for keyword in KEYWORDS:
        if match and match[1].startswith(keyword):
            argument = match[1].removeprefix(keyword).strip()
            if keyword == "not run:" and argument not in REASONS:
                break
            return Comment(keyword, argument or keyword)
    raise BadComment(f"{place}: {text!r} is no comment of a test")
