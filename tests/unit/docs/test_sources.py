"""What a text refers to is in the repository: no pages that are elsewhere, and papers by their authors and section."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
ELSEWHERE = re.compile(
    r"\bseed \d{3}\b|\bdesign\.md\b|\b[Dd]esign,? section \d|\bhouse\.md\b|(?<![\w/-])specs?/\d", re.MULTILINE
)
KINDS = (".py", ".md", ".yaml", ".tpl", ".toml", ".js", ".sh", ".txt")


def texts() -> dict[str, str]:
    """Files of the repository that people read, without this one and what is others' work."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = (
        listed.stdout.split("\0")
        if listed.returncode == 0
        else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    )
    mine = Path(__file__).relative_to(ROOT)
    return {
        name: (ROOT / name).read_text()
        for name in names
        if name.endswith(KINDS) and "vendor" not in name and name != str(mine) and (ROOT / name).is_file()
    }


def test_no_text_refers_to_pages_that_are_elsewhere() -> None:
    found = {f"{name}: {match[0]}" for name, text in texts().items() for match in ELSEWHERE.finditer(text)}
    assert found == set()


def test_code_names_papers_by_their_authors() -> None:
    """What is called "the paper" found by nobody where a text stands alone; pages below docs say which one they mean."""
    found = [
        name
        for name, text in texts().items()
        if name.endswith((".py", ".yaml")) and re.search(r"\b[Tt]he paper\b", text)
    ]
    assert found == []
