"""What `make mutants` found: killed and surviving mutants of each module, and the survivors as differences.

mutmut changes one expression at a time and runs the unit tests that reach it.  A mutant that survives is a line whose
meaning no test holds: a missing test, or a change that makes no difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("mutants")
"""Where mutmut keeps what it has found; relative to the project's root."""
SURVIVED = 0
"""pytest's exit code: no test failed."""
NO_TESTS = (5, 33)
"""pytest's and mutmut's own: no test reaches the function."""


@dataclass(frozen=True, slots=True)
class Module:
    """`codes`: name of each mutant -> exit code of its tests, None where they have not been run."""

    path: str
    codes: Mapping[str, int | None]

    @property
    def run(self) -> int:
        return sum(code is not None for code in self.codes.values())

    @property
    def survivors(self) -> list[str]:
        """Mutants that no test noticed, those that no test reaches among them."""
        return [name for name, code in self.codes.items() if code in (SURVIVED, *NO_TESTS)]


def modules(folder: Path) -> Iterator[Module]:
    """All modules that mutmut has made mutants of, by path."""
    for meta in sorted(folder.rglob("*.py.meta")):
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        if codes:
            yield Module(str(meta.relative_to(folder)).removesuffix(".meta"), codes)


def table(found: list[Module]) -> str:
    """One line a module, in Markdown."""
    lines = ["| module | mutants | run | killed | survive |", "|---|--:|--:|--:|--:|"]
    for module in found:
        survive = len(module.survivors)
        share = f" ({(module.run - survive) / module.run:.0%})" if module.run else ""
        lines.append(
            f"| {module.path} | {len(module.codes)} | {module.run} | {module.run - survive}{share} | {survive} |"
        )
    return "\n".join(lines)


def difference(mutant: str) -> str:
    """What a mutant changes."""
    shown = subprocess.run(
        [sys.executable, "-m", "mutmut", "show", mutant], capture_output=True, text=True, check=True
    )
    return shown.stdout


def main() -> None:
    """Print the table, and write it with all survivors to a file."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for survivors.md")
    options = parser.parse_args()
    found = [module for module in modules(FOLDER) if module.run]
    if not found:
        sys.exit(f"{FOLDER}/ has no results: run `mutmut run` first")
    print(table(found))
    options.out.mkdir(parents=True, exist_ok=True)
    survivors = options.out / "survivors.md"
    with survivors.open("w") as file:
        file.write(f"# Mutants that no test notices\n\n{table(found)}\n")
        for module in found:
            for mutant in module.survivors:
                file.write(f"\n```diff\n{difference(mutant)}```\n")
    print(f"survivors: {survivors}")


if __name__ == "__main__":
    main()
