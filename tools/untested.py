"""Which modules have no test file of their name, and which are imported by no test: `python -m tools.untested`.

A test of a module is looked for where its name is: `scheduler/rules.py` is tested by some `test_rules.py`.  A module is
imported by a test that names it, or that takes from its package something that the package has from it.  What only runs
because something else is tested counts as not imported: nobody has asked what it promises.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
ROOMS = ("algorithms", "controller", "scheduler", "spark_jobs")
"""Folders of the product, each a package below `reprise`."""
NO_MODULES = ("__init__.py", "__main__.py")
"""Doors and starts: they are tested with what is behind them."""


@dataclass(frozen=True, slots=True)
class Untested:
    """Names of modules, sorted."""

    modules: int
    """How many there are in all."""
    unnamed: tuple[str, ...]
    """Without a test file of their name."""
    unimported: tuple[str, ...]
    """Imported by no test."""


def untested(project: Path = PROJECT) -> Untested:
    """What is found in a checkout.  SyntaxError: a file is no Python."""
    packages = {room: project / room for room in ROOMS}
    modules = {
        _module(f, project): f for p in packages.values() for f in p.rglob("*.py") if f.name not in NO_MODULES
    }
    tests = [*(project / "tests").rglob("*.py")]
    named = {f.name for f in tests}
    doors = {_module(f.parent, project): _given(f) for p in packages.values() for f in p.rglob("__init__.py")}
    imported = {name for f in tests for name in _imported(f)}
    reached = {_behind(name, doors) for name in imported} | imported
    return Untested(
        len(modules),
        tuple(sorted(m for m, f in modules.items() if f"test_{f.name}" not in named)),
        tuple(sorted(modules.keys() - reached)),
    )


def _module(path: Path, project: Path) -> str:
    return ".".join(("reprise", *path.relative_to(project).with_suffix("").parts))


def _imported(file: Path) -> Iterator[str]:
    """Full names of modules, and of what is taken from them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _given(door: Path) -> dict[str, str]:
    """Name that a package gives -> module that it has it from.  What is imported with its first use is given as well: it
    stands below `if TYPE_CHECKING`."""
    tree = ast.parse(door.read_text(encoding="utf-8"))
    late = (node.body for node in tree.body if isinstance(node, ast.If) and _is_for_types(node.test))
    found = [
        node
        for body in (tree.body, *late)
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module is not None
    ]
    return {alias.asname or alias.name: str(node.module) for node in found for alias in node.names}


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _behind(name: str, doors: dict[str, dict[str, str]]) -> str:
    """The module from which a package has what is taken from it, itself or through other packages."""
    package, _, taken = name.rpartition(".")
    while (module := doors.get(package, {}).get(taken)) is not None and module != package:
        package = module
    return package


def main() -> None:
    """Print both lists, and how long they are."""
    argparse.ArgumentParser(prog="python -m tools.untested", description=__doc__).parse_args()
    found = untested()
    for title, names in (
        ("without a test file of their name", found.unnamed),
        ("imported by no test", found.unimported),
    ):
        print(f"{len(names)} of {found.modules} modules are {title}:", *names, sep="\n  ")


if __name__ == "__main__":
    main()
