"""Text is UTF-8 in each file, whatever the locale of a machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("algorithms", "scheduler", "spark_jobs", "controller")
CALLED = re.compile(r"read_text|write_text|open\(")


def of_the_locale(source: str) -> list[int]:
    """The lines that read or write text without naming its encoding."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and "encoding" not in {word.arg for word in node.keywords}:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
            text = any(isinstance(mode, str) and re.fullmatch("[rwax]t?", mode) for mode in modes)
            if name in ("read_text", "write_text") or (name in ("open", "fdopen") and text):
                found.append(node.lineno)
    return found


def test_every_module_names_the_encoding_of_its_files() -> None:
    modules = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    texts = ((path, text) for path in modules if CALLED.search(text := path.read_text(encoding="utf-8")))
    wrong = [f"{path.relative_to(ROOT)}:{line}" for path, text in texts for line in of_the_locale(text)]
    assert not wrong, f'{wrong}: give encoding="utf-8"'


def test_what_counts_as_text() -> None:
    assert of_the_locale(
        'p.read_text()\np.open("a")\nopen(p, "w")\np.open("rb")\na.open()\nos.open(p, 1)'
    ) == [1, 2, 3]
