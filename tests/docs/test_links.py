"""Every relative link of the documentation leads somewhere, to the very heading where it names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, named


def problem(page: Path, target: str) -> str | None:
    """What is wrong with a link, or None."""
    if "://" in target or target.startswith("mailto:"):
        return None
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.is_relative_to(ROOT):
        return f"{target} leaves the repository"
    if not found.exists():
        return f"{target} does not exist"
    if anchor and anchor not in anchors(found):
        return f"{target}: there is no such heading; there are {sorted(anchors(found))}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [found for target in links(page) if (found := problem(page, target))] == []


def test_a_broken_link_would_be_noticed() -> None:
    page = ROOT / "README.md"
    assert problem(page, "docs/lab.md#in-tests") is None
    assert problem(page, "docs/nowhere.md") == "docs/nowhere.md does not exist"
    assert "no such heading" in str(problem(page, "docs/lab.md#nowhere"))
    assert problem(page, "../elsewhere") == "../elsewhere leaves the repository"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
        left += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert sorted(map(named, set(PAGES) - reached)) == []
