"""`reprise compare`: do two runs agree on every byte of their output?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reprise.controller.cli import exits
from reprise.controller.cli.render import for_programs, output_option
from reprise.controller.local.report.compare import Comparison, compare

SHOWN = 20
KINDS = ("missing", "extra", "different", "twice", "marked")


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@output_option
def command(a: Path, b: Path, output: str) -> None:
    """Compare the sink output of two run folders, file by file: one file is one (output partition, batch).

    Exit code 0: identical; 1: something is missing, extra or different in B; 5: nothing but batches that are marked, on one
    of the sides, as lacking rows (`availability: amnesia`). With -o wide every piece is named.

    \b
    Example:
      reprise compare out/no-faults out/eight
    """
    found = compare(a, b)
    tell(found, output)
    if found.unexplained:
        raise SystemExit(exits.NO)
    if found.marked:
        raise SystemExit(exits.MARKED)


def tell(found: Comparison, output: str) -> None:
    """Print a comparison in the form that `-o` asks for."""
    pieces = {name: [list(piece) for piece in getattr(found, name)] for name in KINDS}
    if not for_programs({"equal": found.equal, **pieces, "silent": list(found.silent)}, output):
        for line in lines(found, None if output == "wide" else SHOWN):
            click.echo(line)


def lines(found: Comparison, most: int | None = SHOWN) -> list[str]:
    """The verdict, then the first `most` pieces of each kind, or all."""
    silent = [f"nothing is known of {', '.join(found.silent)}: no output"] if found.silent else []
    if found.identical:
        return [f"identical: {found.equal} pieces (output partition, batch) agree in every byte", *silent]
    but = "" if found.unexplained else ", and all others are marked as lacking rows"
    text = [f"not identical: {found.equal} pieces agree{but}"]
    for name in KINDS:
        text += _some(name, getattr(found, name), most)
    return text + silent


def _some(name: str, pieces: Sequence[tuple[str, int]], most: int | None) -> list[str]:
    if not pieces:
        return []
    some = ", ".join(f"{partition} batch {batch}" for partition, batch in pieces[:most])
    return [f"{name} ({len(pieces)}): {some}{' ...' if most is not None and len(pieces) > most else ''}"]
