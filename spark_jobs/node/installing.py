"""Installing a partition whose checkpoint store or sink may be away: tried again on the living host, later and later.

Trouble of a store says nothing of the partition's code or of the checkpoint, so it must neither set the partition aside
(`poison`) nor give the checkpoint up.  The partition is still being installed then: the host reports its installation and
no position.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.errors import CheckpointError, StoreError
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.topology import StreamTopology, Topology, make_operator

FIRST_PAUSE_S = 0.5
"""Between the first two attempts; each further pause is twice as long."""
LONGEST_PAUSE_S = 15.0
"""An attempt may hold its host for as long as the store takes to refuse, so it is not made with each command; and a store
that is back is noticed within this time."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is to be installed, and when (monotonic seconds) it is tried next."""

    install: Install
    due: float = float("-inf")
    pause_s: float = FIRST_PAUSE_S

    def later(self, now: float) -> Attempt:
        """After an attempt that failed."""
        return Attempt(self.install, now + self.pause_s, min(2 * self.pause_s, LONGEST_PAUSE_S))


def state_tables(store: CheckpointStore, install: Install) -> Tables | None:
    """The stored state, None where none is needed.  StoreError: not now; another CheckpointError: this checkpoint is bad."""
    if install.file is None:
        return None
    try:
        return store.read_state(StateFile(**install.file))
    except CheckpointError:
        raise
    except Exception as error:  # a store's client library raises what it likes
        raise StoreError(f"{install.file['path']}: {type(error).__name__}: {error}") from error


def replayable(output: str, resource: StreamTopology, topology: Topology) -> bool:
    """Whether a replay of this output partition gives the same rows: everything upstream is deterministic."""
    needs = {topology.partitions[p].place.operator for p in topology.queries[output].partitions}
    return all(make_operator(o).deterministic for o in resource.operators if o.name in needs)
