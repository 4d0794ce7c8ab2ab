"""What the command lines of the benchmarks on a cluster share: the same words for the same things, and an end that shows
what was measured until then."""

from __future__ import annotations

import argparse
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console


def parser(name: str, description: str | None, nodes: int, timeout_s: float) -> argparse.ArgumentParser:
    """With `--out`, `--nodes` and `--timeout`; `description`: a module's docstring, of which the first line is shown."""
    found = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=(description or "").partition("\n")[0]
    )
    found.add_argument("--out", type=Path, required=True, help="replaced when it is there")
    found.add_argument("--nodes", type=int, default=nodes)
    found.add_argument("--timeout", type=float, default=timeout_s, help="of one run, seconds")
    return found


def begin(out: Path) -> None:
    """An empty folder; from now on SIGTERM is KeyboardInterrupt, as Ctrl-C is."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    signal.signal(signal.SIGTERM, _interrupt)


def say(console: Console, lines: Iterable[str]) -> None:
    """Lines of Markdown; those that begin in bold stand out."""
    for line in lines:
        console.print(line.replace("**", ""), style="bold" if line.startswith("**") else "", highlight=False)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
