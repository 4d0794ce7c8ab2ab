"""How fast the demo's stream may go on this machine, now: measured on the very topology, as busy as the machine is.

A stream that the machine cannot follow is late with and without faults, and a comparison of two recoveries then compares
noise.  So the fault-free run, which is needed anyway, goes first and as fast as it can; the runs with faults get `ROOM`
times the seconds that a query then had from one output to the next: room for starting processes, for restoring and for
catching up.  Not the batches a second count: a job that takes long applies many batches, which says nothing of how late they
are.  Delays of the fault file are stretched alike, as a machine that is slow with jobs is slow with new nodes, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from controller.run.errors import RunError
from controller.run.faults import Fault

ROOM = 2.5
"""One batch a second is for a machine that has an output every 0.4 s, about one job's time on two idle cores."""
LEAST_S = 1.0
MOST_S = 3.0
"""Slower than this the demo would take a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured and what follows from it, in seconds."""

    output_s: float
    """From one output of a query to the next when nothing holds the stream back."""
    interval_s: float
    """Between the batches of the runs with faults."""

    @property
    def stretch(self) -> float:
        """How much longer than on a machine that is fast enough everything takes."""
        return self.interval_s / LEAST_S

    @property
    def follows(self) -> bool:
        """Whether the machine is fast enough for the slowest pace that the demo knows."""
        return self.output_s <= self.interval_s

    def describe(self) -> str:
        """For who watches."""
        text = (
            f"Measured without faults: an output every {self.output_s:.2f} s on this machine, as busy as it is. "
            f"Chosen: one batch every {self.interval_s:g} s, so that there is time to recover and to catch up"
        )
        if self.stretch > 1:
            text += f"; new nodes come {self.stretch:g} times as slowly"
        if not self.follows:
            text += ". THE MACHINE CANNOT FOLLOW even so: the comparison will say little"
        return text + "."


def choose(output_s: float) -> Pace:
    """The pace for a machine that takes so many seconds from one output of a query to the next."""
    wanted = math.ceil(10 * ROOM * output_s - 1e-6) / 10
    return Pace(output_s, min(MOST_S, max(LEAST_S, wanted)))


def measured(events: Path) -> float:
    """Seconds from one output of a query to the next, as one meets it at a random moment of a run that has become warm (its
    first quarter is left out); the median over the queries.  RunError when too little was written to say."""
    times: dict[str, list[float]] = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        times.setdefault(event["query"], []).append(event["at"])
    gaps = [gap for each in times.values() if (gap := _usual_gap(sorted(each))) > 0]
    if not gaps:
        raise RunError(f"{events} has too few outputs to choose a pace by")
    return median(gaps)


def _usual_gap(times: Sequence[float]) -> float:
    """The mean of the gaps, each weighted by its length: outputs that come in bursts are as far apart as the bursts."""
    begin = times[0] + (times[-1] - times[0]) / 4
    gaps = [late - early for early, late in pairwise(times) if late > begin]
    total = sum(gaps)
    return sum(gap * gap for gap in gaps) / total if total > 0 else 0.0


def stretched(faults: Iterable[Fault], factor: float) -> tuple[Fault, ...]:
    """The same faults with times and delays `factor` times as long."""
    found = []
    for fault in faults:
        at = fault.trigger.value * factor if fault.trigger.kind == "at" else fault.trigger.value
        trigger = replace(fault.trigger, value=at, delay_s=fault.trigger.delay_s * factor)
        found.append(replace(fault, trigger=trigger))
    return tuple(found)
