"""What a run is told at its start, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from reprise.algorithms import ALGORITHMS
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.faults.faults import Fault
from reprise.controller.zookeeper.node_record import SESSION_S
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, load_topology
from reprise.spark_jobs.topology.schema import nearest


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"  # the stream ended, every query wrote everything, no incident is open
    POISONED = (
        "poisoned"  # code of some operator raised; the stream ended without its queries, or none was left
    )
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"  # Ctrl-C or SIGTERM
    FAILED = "failed"  # the run itself could not go on


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run.  `resource` has all overrides applied (see `load`)."""

    resource: StreamTopology
    out: Path
    faults: tuple[Fault, ...] = ()
    standby: int | None = None
    """Nodes started beyond those of the resource.  None: as many as the faults take for `best-case`, else 0."""
    timeout_s: float | None = None
    resume: bool = False
    cluster: EmbeddedCluster | None = None
    """A started cluster to run on, left running; None starts one for this run.  Nodes are added or killed so that the run
    begins with its own number."""
    python_path: str = ""
    """Folder of the user's classes, for the driver and its executors."""
    session_timeout_ms: int = round(SESSION_S * 1000)
    """How long after a kill a node's heartbeat is missed."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels of the nodes, with the values that they take in turn."""
    keep_adds: bool = False
    """With standby nodes the arrivals of the fault file are left out, unless this is set."""
    log_format: str | None = None
    """Of driver and coordinator: text or json; None: as REPRISE_LOG_FORMAT says."""
    metrics_port: int = 0
    """Metrics of the run are served at this port of 127.0.0.1 and the driver's at the following one; 0: not served."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to; everything else is in its folder."""

    outcome: Outcome
    out: Path
    record: Mapping[str, Any]
    """As in run.json."""
    incident: Mapping[str, Any] = field(default_factory=dict)
    """As in incident.json."""
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.DONE


def load(
    path: str | Path,
    *,
    nodes: int | None = None,
    strategy: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> StreamTopology:
    """A checked topology file with overrides, as `reprise.spark_jobs.topology.override` takes them.  SpecError, OSError."""
    changes: dict[str, Any] = dict(overrides or {})
    if nodes is not None:
        changes["nodes.count"] = nodes
    if strategy is not None:
        changes["recovery.strategy"] = strategy
    resource = load_topology(path, changes)
    planner = resource.recovery.algorithm
    if planner not in ALGORITHMS:
        reason = f"there is no planner {planner!r}{nearest(planner, list(ALGORITHMS))}"
        raise SpecError("spec.recovery.algorithm", reason)
    return resource
