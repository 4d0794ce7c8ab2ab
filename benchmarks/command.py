"""What the command lines of the benchmarks on a cluster share: the same words for the same things, an end that shows
what was measured until then, and the place of figures in a document."""

from __future__ import annotations

import argparse
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console


def parser(
    name: str, description: str | None, nodes: int, timeout_s: float | None = None
) -> argparse.ArgumentParser:
    """With `--out`, `--nodes` and, if it has a default, `--timeout`; `description`: its first line is shown."""
    found = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=(description or "").partition("\n")[0]
    )
    found.add_argument("--out", type=Path, required=True, help="replaced when it is there")
    found.add_argument("--nodes", type=int, default=nodes)
    if timeout_s is not None:
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


def put_figures(document: Path, name: str, text: str) -> None:
    """Put the tables of a benchmark into a document, in place of what stands between its two lines there.  ValueError: the
    document does not have them."""
    begin, end = marks(name)
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{document}: a line {begin!r} and one {end!r} behind it are needed")
    document.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")


def marks(name: str) -> tuple[str, str]:
    """The lines of a document between which the tables of a benchmark stand."""
    return f"<!-- figures of {name}: begin -->", f"<!-- figures of {name}: end -->"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
