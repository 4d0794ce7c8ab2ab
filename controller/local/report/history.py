"""The outputs of a run as `events.jsonl` tells them: who wrote which batch when, and when it was due.

A batch that is applied again after a rollback is reported again; the first write counts, as that is when its result
was there.  Invariant: latencies are never negative clock artefacts: due times and write times are of one machine's clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reprise.controller.errors import ReportError

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Writes:
    """One query's outputs in the order of their batches; times are unix seconds."""

    batches: NDArray[np.int64]
    due: Seconds
    written: Seconds

    @property
    def latency(self) -> Seconds:
        """Write time less due time."""
        found: Seconds = self.written - self.due
        return found


def read_events(path: Path) -> dict[str, Writes]:
    """Read the writes of each query.  An unfinished last line (the driver was killed) is left out; ReportError for any
    other damage."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error
    first: dict[str, dict[int, tuple[float, float]]] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = json.loads(line)
            query, batch = str(event["query"]), int(event["batch"])
            at, due = float(event["at"]), float(event["due"])
            if not math.isfinite(at + due):
                raise ValueError("times must be finite")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            if number == len(lines):
                continue
            raise ReportError(f"{path}: line {number}: not an output event: {error!r}") from error
        seen = first.setdefault(query, {})
        if batch not in seen or at < seen[batch][0]:
            seen[batch] = (at, due)
    return {query: _writes(seen) for query, seen in sorted(first.items())}


def _writes(seen: Mapping[int, tuple[float, float]]) -> Writes:
    batches = sorted(seen)
    return Writes(
        np.array(batches, dtype=np.int64),
        np.array([seen[b][1] for b in batches]),
        np.array([seen[b][0] for b in batches]),
    )
