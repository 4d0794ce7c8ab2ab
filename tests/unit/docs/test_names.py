"""What texts of the repository name is there: files by their path, modules by their dotted name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = "algorithms|benchmarks|controller|crds|docker|docs|examples|monitoring|reprise|scheduler|spark_jobs|tests|tools"
PATH = re.compile(rf"(?<![\w/.\-])(?:{FOLDERS})/[\w/.\-]*\w\.(?:csv|json|lock|md|py|yaml)\b(?!\.)")
MODULE = re.compile(
    r"(?:(?<![\w./\-])reprise\.(?:algorithms|controller|scheduler|spark_jobs)"
    r"|(?:(?<=-m )|(?<=from ))(?:tools|examples\.demo))"
    r"(?:\.[A-Za-z_]\w*)+"
)
MADE_UP = {"scheduler/a.py", "reprise.spark_jobs.operator"}
"""Names that tests give to what is not there."""


@cache
def texts() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    kinds = {".md", ".py", ".toml", ".yaml", ".tpl", ""}
    found = [ROOT / name for name in listed if Path(name).suffix in kinds and "vendor" not in name]
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
