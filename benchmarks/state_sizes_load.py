"""The state and the rows of `benchmarks.state_sizes`: the same for whoever keeps them, from a seed.

A keyed aggregate with a count and, of ten columns each, the sum, the least and the greatest value: many bytes a key, so that
what finds a key is a small part of it.  The columns are made of one number, so a row that is written to a file has two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.operators import KeyedAggregate
from reprise.spark_jobs.operators.testing import PLACE, inbox

COLUMNS = 10
BATCHES = 10
"""In which the keys that are touched between two snapshots come."""
LOAD_ROWS = 250_000
"""Keys of a batch while the state is made."""
BEHIND = 5
"""Batches that come after the last snapshot, and that a recovery has to do once more."""


@dataclass(frozen=True, slots=True)
class Load:
    """`keys`: of the state; `share`: of these touched between two snapshots; `together`: those that came one after the
    other, or else drawn evenly; `rate`: rows a second that come."""

    keys: int
    share: float
    together: bool
    snapshots: int
    rate: float

    @property
    def rows(self) -> int:
        """Of a batch."""
        return max(1, int(self.keys * self.share) // BATCHES)

    @property
    def interval_s(self) -> float:
        """Between two batches."""
        return max(0.1, self.rows / self.rate)

    def filling(self) -> Iterator[np.ndarray]:
        """All keys once."""
        for first in range(0, self.keys, LOAD_ROWS):
            yield np.arange(first, min(first + LOAD_ROWS, self.keys))

    def batches(self) -> Iterator[np.ndarray]:
        """The keys of each batch: `snapshots` times `BATCHES`, and those behind."""
        for cycle in range(self.snapshots + 1):
            dice = np.random.default_rng([cycle, self.keys, int(self.share * 1000), self.together])
            count = self.rows * BATCHES
            if self.together:
                every = (int(dice.integers(0, self.keys)) + np.arange(count)) % self.keys
            else:
                every = dice.choice(self.keys, count, replace=count > self.keys)
            parts = every.reshape(BATCHES, self.rows)
            yield from parts if cycle < self.snapshots else parts[:BEHIND]


def operator() -> KeyedAggregate:
    found = {"n": "count()"}
    for at in range(COLUMNS):
        found |= {f"{name}{at}": f"{name}(v{at})" for name in ("sum", "min", "max")}
    return KeyedAggregate(keys=["k"], aggregate=found)


def table(keys: np.ndarray, batch: int) -> pa.Table:
    """The rows of a batch."""
    values = value(keys, batch)
    return pa.table({"k": keys, **{f"v{at}": values + at for at in range(COLUMNS)}})


def value(keys: np.ndarray, batch: int) -> np.ndarray:
    """The number of which the columns of a row are made."""
    return (keys * 31 + batch * 17) % 1009


def bytes_a_key() -> int:
    """That the state takes in arrays, and as a key in a column."""
    make = operator()
    state, _ = make.step(make.initial(PLACE), inbox(1, table(np.arange(2), 1)))
    return 8 + sum(np.dtype(kind).itemsize for kind in state.values.types.values())


def sleep_until(due: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Monotonic seconds."""
    if (left := due - clock()) > 0:
        time.sleep(left)


def quantile(values: list[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else 0.0
