"""`python -m tools.figures`: the figures of this code that docs/figures.md compares, as a Markdown table.

Counted from the text of the files alone, so that it can count another version, too: `--root FOLDER`, of a checkout.

A branch point is an `if`, a loop, an `except`, a `with`, a conditional expression, a `for` of a comprehension, or an operand
of `and` or `or` beyond the first; those of an inner function are its own.  Lines of a function: without its docstring.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

PRODUCT = ("algorithms", "scheduler", "spark_jobs", "controller")
MANY_BRANCHES = 10
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.With,
    ast.comprehension,
)


@dataclass(frozen=True)
class Source:
    """One Python file."""

    name: str
    """Path below the root."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(n for n in ast.walk(self.tree) if isinstance(n, Function))

    @property
    def module(self) -> tuple[str, ...]:
        """Names from the folder on, without `__init__`."""
        parts = self.name.removesuffix(".py").split("/")
        return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path, folders: Iterable[str]) -> list[Source]:
    """All Python files below these folders of `root`, which are no links."""
    found = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return [Source(str(p.relative_to(root)), p.read_text(encoding="utf-8")) for p in found]


def branch_points(function: Function) -> int:
    """How many a function has, without those of the functions and classes in it."""
    points, left = 0, list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, Function | ast.ClassDef):
            continue
        points += isinstance(node, _BRANCHES)
        points += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        left += ast.iter_child_nodes(node)
    return points


def lines_of(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = function.body[0]
    docstring = _height(first) if ast.get_docstring(function) is not None else 0
    return _height(function) - docstring


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_annotated(function: Function) -> bool:
    """Whether every parameter but `self` and `cls`, and the result, has a type."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    named = [a for a in every if a is not None and a.arg not in ("self", "cls")]
    return function.returns is not None and all(a.annotation is not None for a in named)


def comments(files: Iterable[Source]) -> tuple[int, int]:
    """Comments on a line of their own, and behind code."""
    own = behind = 0
    for file in files:
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if token.type == tokenize.COMMENT:
                alone = token.line[: token.start[1]].strip() == ""
                own, behind = own + alone, behind + (not alone)
    return own, behind


def docstring_lines(files: Iterable[Source]) -> int:
    """Lines of the docstrings of modules, classes and functions."""
    kinds = ast.Module | ast.ClassDef | Function
    nodes = [n for f in files for n in ast.walk(f.tree) if isinstance(n, kinds)]
    return sum(_height(n.body[0]) for n in nodes if ast.get_docstring(n) is not None)


def repeated(names: Iterable[str]) -> Mapping[str, int]:
    """Names that occur more than once, with how often."""
    return {name: count for name, count in Counter(names).items() if count > 1}


def cycles(files: Iterable[Source]) -> list[tuple[str, ...]]:
    """Rooms, the packages and modules directly below one of the four folders, that import each other in a circle."""
    arrows: dict[str, set[str]] = {}
    inside = [f for f in files if len(f.module) > 1]
    rooms = {".".join(f.module[:2]) for f in inside}
    for file in inside:
        mine = ".".join(file.module[:2])
        arrows.setdefault(mine, set()).update(
            room for name in imported(file) if (room := ".".join(name.split(".")[:2])) in rooms - {mine}
        )
    reach = {room: reachable(arrows, room) for room in arrows}
    circles = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in arrows if a in reach[a]}
    return sorted(circles)


def imported(file: Source) -> Iterator[str]:
    """What a file imports when it is loaded or later, by full name below the import root; not what is only for types."""
    left: list[ast.AST] = [file.tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("reprise.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}".removeprefix("reprise.") for alias in node.names)
        left += ast.iter_child_nodes(node)


def reachable(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    """Everything behind the arrows of `start`."""
    found, left = set[str](), list(arrows.get(start, ()))
    while left:
        if (room := left.pop()) not in found:
            found.add(room)
            left += arrows.get(room, ())
    return found


def table(root: Path) -> list[tuple[str, str]]:
    """Each figure with what it is, in the order of docs/figures.md."""
    files, tests = sources(root, PRODUCT), sources(root, ("tests",))
    functions = [f for file in files for f in file.functions]
    heights = sorted(map(lines_of, functions))
    points = sorted(map(branch_points, functions))
    lines, test_lines = sum(f.lines for f in files), sum(f.lines for f in tests)
    classes = [n.name for f in files for n in f.tree.body if isinstance(n, ast.ClassDef)]
    public = [f for f in functions if not f.name.startswith("_")]
    free = [
        n.name for f in files for n in f.tree.body if isinstance(n, Function) and not n.name.startswith("_")
    ]
    own, behind = comments(files)
    circles = cycles(files)
    settings = (root / "pyproject.toml").read_text(encoding="utf-8")
    stubs = root / "typings"
    return [
        (
            "product Python: lines, files, median file",
            f"{lines:,}, {len(files)}, {median(f.lines for f in files):.0f}",
        ),
        (
            "largest file; files over 300 lines; over 500",
            f"{max(f.lines for f in files)}; {_over(300, [f.lines for f in files])}; "
            f"{_over(500, [f.lines for f in files])}",
        ),
        (
            "lines of a function: median, 90 % below, most; over 30; over 50",
            f"{median(heights):.0f}, {heights[int(len(heights) * 0.9)]}, {heights[-1]}; {_over(30, heights)}; "
            f"{_over(50, heights)}",
        ),
        (
            f"functions; those with more than {MANY_BRANCHES} branch points (most)",
            f"{len(functions):,}; {_over(MANY_BRANCHES, points)} ({points[-1]})",
        ),
        (
            "functions with all types; with a docstring (public ones); modules with a docstring",
            f"{_share(map(is_annotated, functions))}; {_share(ast.get_docstring(f) is not None for f in functions)} "
            f"({_share(ast.get_docstring(f) is not None for f in public)}); "
            f"{_share(ast.get_docstring(f.tree) is not None for f in files if f.text.strip())}",
        ),
        (
            "test lines; to a product line; test functions; files with Hypothesis",
            f"{test_lines:,}; {test_lines / lines:.2f}; "
            f"{sum(f.name.startswith('test_') for t in tests for f in t.functions):,}; "
            f"{sum('hypothesis' in t.text for t in tests)}",
        ),
        ("import contracts", str(settings.count("[[tool.importlinter.contracts]]"))),
        (
            "rooms that import each other in a circle, in one circle at most",
            str(max(map(len, circles), default=0)),
        ),
        ("files of stubs in `typings/`", str(len(list(stubs.rglob("*.pyi"))) if stubs.is_dir() else 0)),
        ("product lines that say `Any`", str(sum(len(_ANY_LINE.findall(f.text)) for f in files))),
        (
            "comments on their own line, behind code; docstring lines",
            f"{own}, {behind}; {docstring_lines(files):,}",
        ),
        (
            "class names, and public function names but `main` and `command`, that exist more than once",
            f"{len(repeated(classes))}, {len(repeated(free).keys() - {'main', 'command'})}",
        ),
    ]


_ANY_LINE = re.compile(r"^.*\bAny\b.*$", re.MULTILINE)


def _over(limit: int, values: Iterable[int]) -> int:
    return sum(value > limit for value in values)


def _share(values: Iterable[bool]) -> str:
    found = list(values)
    return f"{100 * sum(found) / len(found):.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="folder of a checkout")
    parser.add_argument(
        "--branches", action="store_true", help="list the functions with many branch points instead"
    )
    options = parser.parse_args()
    if options.branches:
        found = [(branch_points(f), s.name, f) for s in sources(options.root, PRODUCT) for f in s.functions]
        for points, name, function in sorted(found, key=lambda one: (-one[0], one[1], one[2].lineno)):
            if points > MANY_BRANCHES:
                print(f"{points} {name}:{function.lineno} {function.name}")
        return
    print("| what | here |\n|---|---|")
    for what, figure in table(options.root):
        print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main()
