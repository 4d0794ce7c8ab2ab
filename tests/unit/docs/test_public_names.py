"""What is promised to those who import Reprise: names, parameters and defaults are those that were written down.

`public_names.txt` beside this file has a line for each.  A new one is added to it; one that changes or goes breaks what
docs/stability.md promises, so whoever takes a line out says in the changelog how to follow.

    python tests/unit/docs/test_public_names.py > tests/unit/docs/public_names.txt
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODULES = ("contract", "kafka", "operators", "sources", "testing")
BY_METHOD = ("contract", "testing")
"""Those whose classes are inherited from or called; of the others resources name classes and parameters."""
WRITTEN = Path(__file__).with_name("public_names.txt")


def names() -> Iterator[str]:
    """A line for each name, and for each method of those classes whose methods are promised."""
    for module in MODULES:
        found = importlib.import_module(f"reprise.{module}")
        for name in sorted(found.__all__):
            yield from described(f"reprise.{module}:{name}", getattr(found, name), module in BY_METHOD)


def described(path: str, value: Any, methods: bool = False) -> Iterator[str]:
    if isinstance(value, enum.EnumType):
        yield f"{path} = {', '.join(member.name for member in value)}"
    elif not inspect.isclass(value):
        yield path + (called(value) if inspect.isfunction(value) else "")
    else:
        yield path + ("" if issubclass(value, Exception) or inspect.isabstract(value) else called(value))
        for name, member in sorted(members(value).items() if methods else ()):
            yield f"{path}.{name}" + (called(member) if inspect.isfunction(member) else "")


def members(cls: type[Any]) -> dict[str, Any]:
    """What is public in a class, and in those of ours from which it inherits."""
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("reprise.")]
    return {name: value for base in ours for name, value in vars(base).items() if not name.startswith("_")}


def called(function: Any) -> str:
    """Parameters and their defaults, without types."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def test_what_is_promised_is_what_was_written_down() -> None:
    now, written = list(names()), WRITTEN.read_text().splitlines()
    assert [line for line in written if line not in now] == [], "breaks what docs/stability.md promises"
    assert [line for line in now if line not in written] == [], "write them down"
    assert len(written) > 150


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(a, b=1): ...", "def f(a): ..."),
        ("def f(a, b=1): ...", "def f(a, b=2): ..."),
        ("def f(a): ...", "def f(a, b): ..."),
        ("def f(a): ...", "def f(b): ..."),
    ],
)
def test_a_parameter_that_changes_is_seen(before: str, after: str) -> None:
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    exec(before, one)
    exec(after, other)
    assert list(described("f", one["f"])) != list(described("f", other["f"]))


if __name__ == "__main__":
    print(*names(), sep="\n")
