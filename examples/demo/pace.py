"""How fast the demo's stream may go on this machine, now: measured on the very topology, as busy as the machine is.

A stream that the machine cannot follow is late with and without faults, and a comparison of two recoveries then compares
noise.  So the fault-free run, which is needed anyway, goes first, and at the pace that is wished for: a batch a second.
What counts is how late its outputs are once JVMs and Python workers are warm: on a machine that follows that stays small, on
one that does not it grows with each batch.  The gaps between outputs say neither: a Spark job applies all batches that wait,
so a stream that is driven as hard as it can be shows many outputs at once and then none for seconds, where the machine
follows with ease.

Times of the fault file are stretched with the pace, as a machine that is slow with batches is slow with new nodes, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from reprise.controller.errors import RunError
from reprise.controller.local.faults.faults import Fault
from reprise.controller.local.report.history import Writes

LEAST_S = 1.0
"""Between batches where the machine follows, and in the run that is measured."""
MOST_S = 3.0
"""Slower than this the demo would take a quarter of an hour."""
MOST_LATE = 7
"""Batches. A topology runs two to seven behind its newest one while all is well, and each query is judged by its own lag
(`scheduler.back`); with outputs that are usually later than this, one that is slow and one that is down look alike."""
LEAST_BATCHES = 12
"""Of an output; with fewer nothing is warm."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured and what follows from it, in seconds."""

    late_s: float
    """How long after it was due a batch was usually written, at a batch every `LEAST_S`."""

    @property
    def interval_s(self) -> float:
        """Between the batches of the runs with faults: what was late is `MOST_LATE` of them late, or less."""
        return min(MOST_S, max(LEAST_S, math.ceil(10 * self.late_s / MOST_LATE - 1e-6) / 10))

    @property
    def stretch(self) -> float:
        """How many times as long as on a machine that is fast enough everything takes."""
        return self.interval_s / LEAST_S

    @property
    def follows(self) -> bool:
        """Whether the pace is slow enough for this machine, by what was measured."""
        return self.late_s <= MOST_LATE * MOST_S

    def describe(self) -> str:
        """For who watches."""
        text = (
            f"Measured at a batch every {LEAST_S:g} s: outputs come {self.late_s:.1f} s after they are due. "
        )
        if self.stretch <= 1:
            return text + "This machine follows; the runs with faults go at the same pace."
        text += f"So the runs with faults get a batch every {self.interval_s:g} s, and nodes fail and arrive"
        text += f" {self.stretch:g} times as slowly."
        if not self.follows:
            text += (
                " THIS MACHINE IS VERY BUSY OR VERY SLOW: if it cannot follow that either, the comparison of the two"
                " recoveries will say little."
            )
        return text


def measured(writes: Mapping[str, Writes]) -> Pace:
    """From the outputs, by query, of a run without faults and with `LEAST_S` between batches.

    The median over the last third of the batches, as the first ones start JVMs and one job that took long is no usual one;
    then the median over the queries.  RunError: too little was written to say.
    """
    enough = [each.latency for each in writes.values() if len(each.batches) >= LEAST_BATCHES]
    if not enough:
        raise RunError("the run without faults has written too few batches to choose a pace by")
    return Pace(max(0.0, median(float(np.median(late[-(len(late) // 3) :])) for late in enough)))


def stretched(faults: Iterable[Fault], factor: float) -> tuple[Fault, ...]:
    """The same faults with times and delays `factor` times as long."""
    found = []
    for fault in faults:
        at = fault.trigger.value * factor if fault.trigger.kind == "at" else fault.trigger.value
        trigger = replace(fault.trigger, value=at, delay_s=fault.trigger.delay_s * factor)
        found.append(replace(fault, trigger=trigger))
    return tuple(found)
