"""How much memory the states of one node take, and that it is no more than they may (`checkpoint.stateMemory`).

After each batch the partition that has applied it is counted anew; when all partitions together have too much in memory,
what is large goes into files of the node, and what is hardly used of these out of memory (`reprise.spark_jobs.spill`).
So a batch may be over the limit by what it has added and read itself, until it is applied.

Invariant: a disk that is full, or fails, costs memory and no row: what cannot be put out stays where it is, which is said.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime
from reprise.spark_jobs.operators.paged import spillable
from reprise.spark_jobs.spill import NOTHING, Spillable, SpillStore
from reprise.spark_jobs.topology.resource import CheckpointPolicy

PAUSE = 10
"""Looking at what is in memory takes a tenth of the time at most: pages are counted one by one."""


class StateMemory:
    """The states of the partitions of one host."""

    def __init__(self, folder: Path, policy: CheckpointPolicy, clock: Callable[[], float]) -> None:
        self.store: SpillStore | None = None
        if policy.state_memory_bytes:
            self.store = SpillStore(folder, policy.state_memory_bytes, policy.state_disk_bytes)
            with suppress(ValueError, OSError):  # each large array is an open file
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._clock, self._due = clock, 0.0
        self._held: dict[str, int] = {}
        """Bytes of each partition that are in memory and in no file."""
        self._told = ""

    def applied(self, partition: str, runtimes: Mapping[str, Runtime]) -> None:
        """A partition has applied a batch, or was installed."""
        if self.store is None:
            return
        self._held[partition] = _held(runtimes[partition], self.store)
        began = self._clock()
        if began < self._due:
            return
        for gone in self._held.keys() - runtimes.keys():
            del self._held[gone]
        self.store.seen.in_memory = held = sum(self._held.values())
        if held + self.store.resident() > self.store.memory_limit:
            self.store.bound([piece for runtime in runtimes.values() for piece in _pieces(runtime)])
            self._held = {p: _held(runtime, self.store) for p, runtime in runtimes.items()}
        now = self._clock()
        self._due = now + PAUSE * (now - began)

    def trouble(self) -> list[str]:
        """Why states take more memory than they may, once until it is another reason."""
        problem = "" if self.store is None else self.store.seen.problem
        told, self._told = self._told, problem
        return (
            [f"states stay in memory beyond checkpoint.stateMemory: {problem}"]
            if problem not in {"", told}
            else []
        )

    @property
    def memory(self) -> int:
        """Bytes of states in pages that are in memory, when they were counted last; 0 where there is no limit."""
        return 0 if self.store is None else self.store.seen.resident + self.store.seen.in_memory

    @property
    def disk(self) -> int:
        """Bytes that their files take."""
        return 0 if self.store is None else self.store.disk


def _held(runtime: Runtime, store: SpillStore) -> int:
    """Bytes of a partition that are in memory and in no file."""
    return sum(piece.spill(store, NOTHING) for piece in _pieces(runtime))


def _pieces(runtime: Runtime) -> Collection[Spillable]:
    if not isinstance(runtime, OperatorRuntime) or not runtime.paged:
        return ()
    return spillable(runtime.operator, runtime.state)
