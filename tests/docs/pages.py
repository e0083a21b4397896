"""The documentation as data: pages, their links, their headings, the commands and examples they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SHELL_WORDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


def named(page: Path) -> str:
    """A page's path from the top of the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    return _FENCE.findall(page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of links in prose; code spans are not looked into."""
    return _LINK.findall(_SPAN.sub("code", prose(page)) + "\n" + _links_around_code(page))


def _links_around_code(page: Path) -> str:
    """Links whose text is a code span: ``[`x`](y)``."""
    return "\n".join(re.findall(r"\[`[^`\n]+`\]\([^)\s]+\)", prose(page)))


def anchors(page: Path) -> set[str]:
    """The names of the page's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def spans(text: str) -> list[str]:
    """Every code span of a piece of Markdown."""
    return _SPAN.findall(text)


def commands(page: Path) -> Iterator[list[str]]:
    """Every call of fleet the page shows, as words after ``fleet``: in blocks, indented, and in spans."""
    lines = [line for _, text in blocks(page) for line in text.splitlines()]
    lines += re.findall(r"^    (.*)$", prose(page), re.MULTILINE)
    for line in (*lines, *spans(prose(page))):
        yield from calls(line)


def calls(line: str) -> Iterator[list[str]]:
    """The calls of fleet in one shell line. Brackets around what is optional are taken off."""
    line = re.sub(r"^\$ ", "", re.sub(r"\[(-[^\]]*)\]", r"\1", line.strip()))
    line = re.sub(r"^.*?(?:go on|again with what is left|try): (?=fleet )", "", line)
    if not re.match(r"(?:sudo |eval )?(?:\S*/)?(?:fleet|ansible-inventory)\b", line):
        return
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return  # prose that happens to begin so
    call: list[str] = []
    for word in [*words, ";"]:
        if word not in _SHELL_WORDS:
            call.append(word)
            continue
        if call[:1] == ["sudo"]:
            call = call[1:]
        if call and call[0].rpartition("/")[2] == "fleet" and not re.match(r"\d|$", (call[1:] or [""])[0]):
            yield call[1:]
        call = []
