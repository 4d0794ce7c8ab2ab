"""Every line of a log names its event first, as docs/logs.md promises: by every call that writes one."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("algorithms", "scheduler", "spark_jobs", "controller")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
EVENT = re.compile(r"event=([a-z0-9]+(-[a-z0-9]+)*|%s)( |$)")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of a logger's methods: of a name `log` or `logger`, or of what `getLogger` gives."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            owner = ast.unparse(node.func.value)
            if owner.rpartition(".")[2] in ("log", "logger", "_log") or "getLogger(" in owner:
                yield node


@functools.cache
def calls_of(package: str) -> tuple[tuple[Path, ast.Call], ...]:
    """Each call in the files of a package, with its file."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return tuple((path, call) for path in paths for call in calls(ast.parse(path.read_text())))


def template(call: ast.Call) -> str:
    """The constant beginning of the message."""
    assert isinstance(call.func, ast.Attribute)
    message: ast.AST | None = call.args[call.func.attr == "log"] if call.args else None
    while isinstance(message, ast.BinOp):
        message = message.left
    return str(message.value) if isinstance(message, ast.Constant) else ""


@pytest.mark.parametrize("package", PACKAGES)
def test_every_line_begins_with_its_event(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {template(call)!r}"
        for path, call in calls_of(package)
        if not EVENT.match(template(call))
    ]
    assert wrong == []


def test_the_calls_are_found() -> None:
    assert sum(len(calls_of(package)) for package in PACKAGES) > 80
