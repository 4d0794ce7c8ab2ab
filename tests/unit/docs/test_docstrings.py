"""Docstrings are sentences that can be understood alone: none begins in the middle of one, none has a line of one word left
over from wrapping."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("algorithms", "scheduler", "spark_jobs", "controller")
FRAGMENT = re.compile(r"(Of|As|By|To|None|For|From|With|At|In|Until)\b|[a-z]")
"""How a text begins that lacks what it is about."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Of the module, its classes and functions, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not text.startswith("\b"):  # click's mark of a block that is not to be wrapped
                yield getattr(node, "lineno", 1), text


def wrong(text: str) -> str:
    """What is wrong with a docstring; empty if nothing is."""
    if FRAGMENT.match(text):
        return f"begins in the middle of a sentence: {text.splitlines()[0]}"
    lines = text.splitlines()
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if (
            before.strip()
            and after.strip()
            and re.fullmatch(r"[\w'`,.;:()-]+", line)
            and not before.startswith((" ", "\b"))
        ):
            return f"has a line of one word: {line}"
    return ""


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_are_whole_sentences(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text()))
        if (what := wrong(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "Of one topology.",
        "As `run`, but slower.",
        "From the page.",
        "With the real port.",
        "At most one.",
        "In words.",
        "Until `stop`.",
        "None when nothing was written.",
        "returns the answer.",
        "Raises RunError when no server answers, and\ngood.\nThe rest follows.",
    ],
)
def test_what_is_refused(text: str) -> None:
    assert wrong(text)


@pytest.mark.parametrize(
    "text",
    ["The driver of one topology.", "Like `run`, but slower.", "Offsets of a batch.", "One.\n\nTwo.\n"],
)
def test_what_is_taken(text: str) -> None:
    assert not wrong(text)
