"""`reprise compare`: do two runs agree on every byte of their output?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from reprise.controller.cli import exits
from reprise.controller.local.report.compare import Comparison, compare

SHOWN = 20


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(a: Path, b: Path, output: str) -> None:
    """Compare the sink output of two run folders, file by file: one file is one (output partition, batch).

    Exit code 0: identical; 1: something is missing, extra or different in B.

    \b
    Example:
      reprise compare out/no-faults out/eight
    """
    found = compare(a, b)
    if output == "json":
        names = ("missing", "extra", "different", "twice")
        click.echo(
            json.dumps(
                {"equal": found.equal, **{n: [list(p) for p in getattr(found, n)] for n in names}}, indent=1
            )
        )
    else:
        for line in lines(found):
            click.echo(line)
    if not found.identical:
        raise SystemExit(exits.NO)


def lines(found: Comparison) -> list[str]:
    """The verdict, then the first pieces of each kind."""
    if found.identical:
        return [f"identical: {found.equal} pieces (output partition, batch) agree in every byte"]
    text = [f"not identical: {found.equal} pieces agree"]
    for name in ("missing", "extra", "different", "twice"):
        text += _some(name, getattr(found, name))
    return text


def _some(name: str, pieces: Sequence[tuple[str, int]]) -> list[str]:
    if not pieces:
        return []
    some = ", ".join(f"{partition} batch {batch}" for partition, batch in pieces[:SHOWN])
    return [f"{name} ({len(pieces)}): {some}{' ...' if len(pieces) > SHOWN else ''}"]
