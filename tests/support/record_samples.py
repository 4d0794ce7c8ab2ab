"""Records with every field set, and Hypothesis strategies for the ones that take any value."""

from __future__ import annotations

from dataclasses import replace

from reprise.algorithms.failure import Failure
from reprise.algorithms.outside import Outside
from reprise.scheduler import (
    Desired,
    Event,
    Incident,
    Kind,
    LostNode,
    PartitionView,
    Phase,
    PlanRecord,
    Poison,
    Policy,
    Progress,
    QueryTimeline,
    QueryView,
    TopologyView,
)
from reprise.scheduler.incident import Candidate, Considered, Trigger
from reprise.scheduler.model import Moving

TOPOLOGY = TopologyView(
    "pair",
    (
        PartitionView("source.0", cpu_milli=100),
        PartitionView("sink.0", upstream=("source.0",), cpu_milli=100),
    ),
    (QueryView("sink.0", 1, frozenset({"source.0", "sink.0"})),),
)
POLICY = Policy(nodes_wanted=2, settle_s=0.0)

PROGRESS = Progress(
    driver="1",
    seq=3,
    generation=2,
    nodes=frozenset({"n1#1", "n2#1"}),
    positions={"source.0": 7, "sink.0": 6},
    failed={"other.0": Failure.parse("node lost")},
    horizon=9,
    punctuation=8,
    ended=False,
    done=False,
    checkpoint=4,
    bad_checkpoints=frozenset({2}),
    not_kept=frozenset({"source.0"}),
    buffers={"memory": 10, "disk": 20},
    time=12.5,
    due=11,
    counters={"sink": {"keys": 5, "late_rows": 2}},
    standbys={"sink.0": 6},
    backed=frozenset({"sink.0"}),
    unbacked=frozenset({"other.0"}),
    overhead={"detection": 3.0, "plan": 1.25},
    stored={"seconds": 40.5, "snapshots": 6, "bytes": 1024},
    deterministic=False,
    output_waits=frozenset({"other.0"}),
    waits={"source.0": Outside.SOURCE, "sink.0": Outside.SINK},
    refused={"other.0": "w1"},
)
DESIRED = Desired(
    3,
    2,
    4,
    "1",
    {"source.0": "n1#1", "sink.0": "n2#1"},
    True,
    False,
    "inc-000002-p1",
    False,
    moving=Moving({"sink.0": "n1#1"}, 9, True, frozenset({"n1#1", "n2#1 leaves"})),
    standbys={"sink.0": "n3#1"},
)
POISON = Poison("1", {"sink.0": "poison: operator sink, batch 9: ValueError"})
INCIDENT = Incident(
    id="inc-000002",
    kind=Kind.CORRELATED,
    phase=Phase.WAITING,
    opened_at=10.0,
    checkpoint=4,
    generation=2,
    nodes_before=4,
    settle_until=11.0,
    driver_until=20.0,
    lost=(LostNode("n3#1", 10.0),),
    plans=("inc-000002-p1",),
    queries={"sink.0": QueryTimeline(10.0, 12.0, None, 2, 1, 3.5, 12.5, 6)},
    costs={"source.0": 100, "sink.0": 100},
    steady={"sink.0": 3},
    horizon=9,
    bad_checkpoints=frozenset({2}),
    considered=Considered(frozenset({"n1#1"}), frozenset({"sink.0"})),
    events=(Event.of(10.0, "opened", "now"),),
    closed_at=None,
)
PLAN = PlanRecord(
    id="inc-000002-p1",
    incident="inc-000002",
    time=11.0,
    trigger=Trigger.FIRST,
    rollback=True,
    checkpoint=4,
    generation=2,
    free={"n1#1": 700},
    candidates=(Candidate("sink.0", 1, 100),),
    plan={"algorithm": "dp", "value": 1},
    added={"sink.0": "n1#1"},
    seconds=0.01,
    left_out={"other.0": "outbid"},
    note="",
    pending=("sink.0",),
    anew=("sink.0",),
)

__all__ = ["DESIRED", "INCIDENT", "PLAN", "POISON", "POLICY", "PROGRESS", "TOPOLOGY", "replace"]
