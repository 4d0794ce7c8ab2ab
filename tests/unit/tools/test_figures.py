"""What `python -m tools.figures` counts, on a small tree."""

from __future__ import annotations

import ast

import pytest

from tools.figures import Function, Source, branch_points, comments, cycles, lines_of


def function(text: str) -> Function:
    (found,) = ast.parse(text).body
    assert isinstance(found, Function)
    return found


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("def f(): return 1", 0),
        ("def f(x):\n if x and x or x: return 1\n return 2 if x else 3", 4),
        ("def f(x):\n for y in x:\n  while y: pass", 2),
        ("def f(x): return [a for b in x for a in b if a]", 2),
        ("def f(x):\n try:\n  with x: pass\n except OSError: pass\n except ValueError: pass", 3),
        ("def f(x):\n def g():\n  if x: pass\n return g", 0),
        ("async def f(x):\n async for y in x: pass", 1),
    ],
)
def test_branch_points_are_those_of_the_function_itself(text: str, points: int) -> None:
    assert branch_points(function(text)) == points


def test_the_lines_of_a_function_are_without_its_docstring() -> None:
    assert lines_of(function('def f():\n    """One.\n\n    Two.\n    """\n    return 1')) == 2
    assert lines_of(function("def f():\n    return 1")) == 2


def test_comments_stand_alone_or_behind_code() -> None:
    text = "# alone\nx = 1  # behind\ny = '# none'\n"
    assert comments([Source("a/b.py", text)]) == (1, 1)


def test_a_circle_is_found_and_imports_for_types_are_none() -> None:
    files = [
        Source("top/a/x.py", "from reprise.top.b import y"),
        Source("top/b/__init__.py", "import reprise.top.c.z"),
        Source("top/c/z.py", "def f():\n    from top.a import x"),
        Source(
            "top/d.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reprise.top.e import E"
        ),
        Source("top/e.py", "from reprise.top.d import D\nfrom reprise.top.a import x"),
        Source("top/__init__.py", "from reprise.top.a import x"),
    ]
    assert cycles(files) == [("top.a", "top.b", "top.c")]
