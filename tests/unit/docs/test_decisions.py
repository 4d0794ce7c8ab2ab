"""Decisions have numbers of their own, and links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
NAMED = re.compile(r"decisions/([\w-]+\.md)")


def test_each_number_is_given_once() -> None:
    """Several are written at a time, so one may be missing for a while."""
    numbers = [path.name[:5] for path in DECISIONS]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"\d{4}-", number) for number in numbers)


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    missing = [
        link
        for link in LINK.findall(page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert missing == []


def test_decisions_that_are_named_are_there() -> None:
    files = [
        p
        for f in (
            "algorithms",
            "scheduler",
            "spark_jobs",
            "controller",
            "docs",
            "charts",
            "examples",
            "benchmarks",
            "tests",
            "tools",
        )
        for p in (ROOT / f).rglob("*")
        if p.suffix in (".py", ".md", ".yaml", ".tpl")
    ]
    there = {path.name for path in DECISIONS}
    named = {(p.relative_to(ROOT), name) for p in files for name in NAMED.findall(p.read_text())}
    assert len(named) > 30
    assert {pair for pair in named if pair[1] not in there} == set()
