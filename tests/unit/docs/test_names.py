"""What texts of the repository name is there: files by their path, modules by their dotted name, tests, and programs."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = "algorithms|benchmarks|controller|crds|docker|docs|examples|monitoring|reprise|scheduler|spark_jobs|tests|tools"
PATH = re.compile(rf"(?<![\w/.\-])(?:{FOLDERS})/[\w/.\-]*\w\.(?:csv|json|lock|md|py|yaml)\b(?!\.)")
MODULE = re.compile(
    r"(?:(?<![\w./\-])reprise\.(?:algorithms|controller|scheduler|spark_jobs)"
    r"|(?:(?<=-m )|(?<=from ))(?:tools|examples\.demo))"
    r"(?:\.[A-Za-z_]\w*)+"
)
TEST = re.compile(r"`([\w/]*\btest_\w*|\.\.\._\w+)(\.\.\.)?(?:\[(\w+)\])?(\.py)?`")
"""Three dots, at either end, stand for the rest of a name; in brackets is a parameter's value."""
OF_FILE = re.compile(rf"`((?:\w+/)?test_\w+)`: ((?:{TEST.pattern}(?:, (?:and )?)?)+)")
"""A file of tests without its ending, and tests in it, as in the tables of docs/messages.md."""
RUN = re.compile(r"(?<=\s-m )[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?![\w.]*[*{])")
MADE_UP = {"docs/new.md", "scheduler/a.py", "reprise.spark_jobs.operator"}
"""Names that tests give to what is not there."""


@cache
def texts() -> tuple[Path, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    kinds = {".md", ".py", ".toml", ".yaml", ".tpl", ""}
    found = [
        ROOT / name
        for name in listed.stdout.split("\0")
        if Path(name).suffix in kinds and "vendor" not in name
    ]
    return tuple(path for path in found if path.is_file() and not path.is_symlink())


def named(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """(name, file that names it)"""
    for path in texts():
        for match in pattern.finditer(path.read_text(encoding="utf-8", errors="ignore")):
            yield match.group(0), str(path.relative_to(ROOT))


def is_module(name: str) -> bool:
    """Whether a prefix of at least two parts is a module, and what follows it may be a name in it."""
    parts = name.removeprefix("reprise.").split(".")
    folder = ROOT
    for number, part in enumerate(parts):
        if (folder / part / "__init__.py").exists():
            folder /= part
            continue
        found = folder / f"{part}.py" if (folder / f"{part}.py").exists() else folder / "__init__.py"
        known = found == folder / f"{part}.py" or re.search(rf"\b{part}\b", found.read_text(encoding="utf-8"))
        rest = parts[number + 1 : number + 2] if found != folder / "__init__.py" else ()
        return bool(known) and all(
            re.search(rf"\b{name}\b", found.read_text(encoding="utf-8")) for name in rest
        )
    return True


def missing(names: Iterable[tuple[str, str]], there: Callable[[str], bool]) -> list[tuple[str, str]]:
    made_up = {(name, file) for name, file in names if name in MADE_UP and file.startswith("tests/")}
    return sorted({(name, file) for name, file in names if not there(name)} - made_up)


def test_every_file_that_is_named_is_there() -> None:
    names = list(named(PATH))
    assert len(names) > 50
    assert missing(names, lambda name: (ROOT / name).exists()) == []


def test_every_module_that_is_named_is_there() -> None:
    names = list(named(MODULE))
    assert len(names) > 500
    assert missing(names, is_module) == []


@cache
def files_with_tests() -> dict[Path, str]:
    """Text by file."""
    return {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}


def is_test(name: str, more: str, parameter: str, in_files: Iterable[Path]) -> bool:
    """Whether one of these files defines it, or, without dots, one of them is it."""
    before = r"\w*" if name.startswith("...") else ""
    after = r"\w*\(" if more else r"\("
    wanted = re.compile("def " + before + re.escape(name.removeprefix("...")) + after)
    return any(
        wanted.search(files_with_tests()[path]) and parameter in files_with_tests()[path] for path in in_files
    )


def files_of(name: str) -> list[Path]:
    """Files of tests that a name, or folder and name, without the ending may mean."""
    return [
        path
        for path in files_with_tests()
        if f"/{path.relative_to(ROOT).with_suffix('')}".endswith(f"/{name}")
    ]


@pytest.mark.long
def test_every_test_that_is_named_is_there() -> None:
    missed, count = [], 0
    for path in texts():
        for name, more, parameter, _ in TEST.findall(path.read_text(encoding="utf-8", errors="ignore")):
            count += 1
            if not files_of(name) and ("/" in name or not is_test(name, more, parameter, files_with_tests())):
                missed.append((name, str(path.relative_to(ROOT))))
    assert count > 60
    assert missed == []


def test_every_test_that_is_named_with_its_file_is_in_it() -> None:
    missed, count = [], 0
    for path in texts():
        for match in OF_FILE.finditer(path.read_text(encoding="utf-8", errors="ignore")):
            for name, more, parameter, _ in TEST.findall(match[2]):
                count += 1
                if not is_test(name, more, parameter, files_of(match[1])):
                    missed.append((match[1], name))
    assert count > 25
    assert missed == []


def test_everything_that_is_run_by_name_can_be_run() -> None:
    names = list(named(RUN))
    assert len(names) > 60
    marks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    known = {mark.partition(":")[0] for mark in marks} | {"not"}
    assert missing([one for one in names if one[0] not in known], can_be_run) == []


def can_be_run(name: str) -> bool:
    """By `python -m`: a module, a package that says what is run, or one that is installed."""
    folder = ROOT.joinpath(*name.split("."))
    if (ROOT / name.partition(".")[0]).is_dir():
        return folder.with_suffix(".py").is_file() or (folder / "__main__.py").is_file()
    return find_spec(name) is not None
