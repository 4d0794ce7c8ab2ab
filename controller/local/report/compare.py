"""Are the outputs of two runs the same, byte for byte?

Faults must not show in the output.  The sink holds one file for each (output partition, batch), so two runs over the same
input agree exactly when their folders have the same files with the same bytes.  Unfinished files (hidden names) are no
output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reprise.controller.errors import ReportError
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sinks import marked_by
from reprise.spark_jobs.topology import StreamTopology, from_json

Piece = tuple[str, int]
"""Output partition and batch."""
_FILE = re.compile(r"batch-(\d+)\.\w+")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs in `b` as seen from `a`; each sorted by partition and batch."""

    equal: int
    missing: tuple[Piece, ...]
    extra: tuple[Piece, ...]
    different: tuple[Piece, ...]
    twice: tuple[Piece, ...]
    """Pieces of which one of the sides has two files (of different formats)."""
    marked: tuple[Piece, ...] = ()
    """Pieces that one of the sides marks as lacking rows; where they differ they are in no other list."""
    silent: tuple[str, ...] = ()
    """Output partitions of the topology that have no piece on either side: nothing is known of them.  A stream that has
    ended leaves a piece for every batch."""

    @property
    def identical(self) -> bool:
        return not (self.unexplained or self.marked)

    @property
    def unexplained(self) -> bool:
        """Whether anything differs that no marker speaks of."""
        return bool(self.missing or self.extra or self.different or self.twice)


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare the sink output of two run folders (or of two sink folders).  ReportError when one is not there, and when none
    of the two holds any output: they may be folders of something else."""
    left, twice_left = pieces(a)
    right, twice_right = pieces(b)
    marked = _marked(a) | _marked(b)
    if not (left or right or marked):
        raise ReportError(f"{a}, {b}: no output in either")
    common = left.keys() & right.keys()
    unequal = [piece for piece in common if not _same(left[piece], right[piece])]
    different = [piece for piece in unequal if piece not in marked]
    return Comparison(
        equal=len(common) - len(unequal),
        missing=tuple(sorted(left.keys() - right.keys())),
        extra=tuple(sorted(right.keys() - left.keys())),
        different=tuple(sorted(different)),
        twice=tuple(sorted(twice_left | twice_right)),
        marked=tuple(sorted(marked)),
        silent=tuple(
            sorted((_promised(a) | _promised(b)) - {partition for partition, _ in left.keys() | right.keys()})
        ),
    )


def pieces(folder: str | Path) -> tuple[Mapping[Piece, Path], set[Piece]]:
    """The output files of a run by (partition, batch), and the pieces that are there more than once."""
    root = _sink(folder)
    found: dict[Piece, Path] = {}
    twice: set[Piece] = set()
    for path in root.glob("*/*/batch-*"):
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        piece = (f"{path.parent.parent.name}.{path.parent.name}", int(match[1]))
        if piece in found:
            twice.add(piece)
        found[piece] = path
    return found, twice


def outputs(resource: StreamTopology) -> dict[str, str]:
    """Output partition -> format of its files; those whose output is not in files have none."""
    return {
        f"{operator.name}.{index}": operator.output.format
        for operator in resource.operators
        if operator.output is not None and operator.output.sink is None
        for index in range(operator.parallelism)
    }


def _promised(folder: str | Path) -> set[str]:
    """Output partitions in files of the topology that was run; none where the folder does not say, as that of a sink."""
    try:
        return set(
            outputs(from_json((Path(folder) / "topology.json").read_text(encoding="utf-8", errors="replace")))
        )
    except (OSError, SpecError):
        return set()


def _sink(folder: str | Path) -> Path:
    root = Path(folder) / "sink" if (Path(folder) / "sink").is_dir() else Path(folder)
    if not root.is_dir():
        raise ReportError(f"{folder}: no such folder")
    return root


def _marked(folder: str | Path) -> set[Piece]:
    """Pieces of a run that say that rows may be missing."""
    found = (path for path in _sink(folder).glob("*/*/batch-*"))
    return {
        (f"{path.parent.parent.name}.{path.parent.name}", batch)
        for path in found
        if (batch := marked_by(path.name)) is not None
    }


def _same(a: Path, b: Path) -> bool:
    return a.suffix == b.suffix and a.stat().st_size == b.stat().st_size and a.read_bytes() == b.read_bytes()
