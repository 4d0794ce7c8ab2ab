"""Decisions are numbered, each says the same things, and links to them lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = (
    {"Context"},
    {"Decision", "Decision and alternatives"},
    {"Alternatives", "Decision and alternatives"},
    {"Consequences"},
)
STATUS = re.compile(r"^Status: (in force|accepted|replaced by \[\d{4}\b)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
NAMED = re.compile(r"decisions/([\w-]+\.md)")


def test_each_number_is_given_once() -> None:
    """Several are written at a time, so one may be missing for a while."""
    numbers = [path.name[:5] for path in DECISIONS]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"\d{4}-", number) for number in numbers)


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_what_it_is_why_and_what_was_not_taken(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]}: ")
    assert STATUS.search(text)
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    for names in SECTIONS:
        (name, *_) = [n for n in names if n in found] or [None]
        assert name is not None, f"there is no section {' or '.join(sorted(names))}"
        assert len(found[name].split()) >= 15, f"{name} says nothing"


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
