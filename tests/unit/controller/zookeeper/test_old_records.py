"""Records as version 0.1.0 wrote them, byte for byte, go on being read: a topology outlives the code that serves it.

The files in `golden` are never rewritten.  A new form of a record gets a new file beside the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.zookeeper.membership import Member, State, parse_member
from reprise.controller.zookeeper.node_record import NodeRecord, parse_node
from reprise.controller.zookeeper.process_records import (
    Leader,
    Spec,
    Waits,
    parse_drain,
    parse_leader,
    parse_number,
    parse_paused,
    parse_spec,
    parse_waits,
)
from reprise.controller.zookeeper.records import (
    CheckpointRecord,
    parse_checkpoint,
    parse_desired,
    parse_poison,
    parse_progress,
    parse_stats,
)
from reprise.controller.zookeeper.recovery_records import parse_incident, parse_plan
from reprise.scheduler.incident import (
    Candidate,
    Considered,
    Event,
    Incident,
    Kind,
    LostNode,
    Phase,
    PlanRecord,
    QueryTimeline,
    Trigger,
)
from reprise.scheduler.model import Desired, PartitionStats, Poison, Progress

GOLDEN = Path(__file__).parent / "golden"
SINK = "poison: operator sink, partition sink.2, batch 57: ValueError: x"

READ: dict[str, tuple[Callable[[bytes, str], Any], Any]] = {
    "checkpoint": (parse_checkpoint, CheckpointRecord(400, 1760000090.5, 4096, 0.251, {"source.0": 16400})),
    "coordinator": (parse_leader, Leader(4711, "error", "/r/desired: $.seq: is missing", 1760000100.5)),
    "coordinator-leads": (parse_leader, Leader(4711)),
    "desired": (
        parse_desired,
        Desired(
            seq=14,
            generation=3,
            checkpoint=400,
            driver="2",
            assignment={"source.0": "n3#1", "sink.0": "n4#1"},
            retain=True,
            punctuate=False,
            plan="inc-000012-p2",
            paused=False,
        ),
    ),
    "desired-compressed": (
        parse_desired,
        Desired(
            seq=14,
            generation=3,
            checkpoint=400,
            driver="2",
            assignment={f"source.{i}": f"n{i % 7}#1" for i in range(400)},
            retain=True,
            punctuate=False,
            plan=None,
            paused=True,
        ),
    ),
    "drain": (parse_drain, "2"),
    "driver": (parse_number, 2),
    "incarnation": (parse_number, 3),
    "incident": (
        parse_incident,
        Incident(
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
        ),
    ),
    "member-fenced": (parse_member, Member(State.FENCED, 1760000000.25, "lost: first-move")),
    "member-joined": (parse_member, Member(State.JOINED, 1760000000.25)),
    "node": (parse_node, NodeRecord("n3", "127.0.1.13", 1, 4711, 1000, 1760000000.0, 3.0)),
    "paused": (parse_paused, True),
    "plan": (
        parse_plan,
        PlanRecord(
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
        ),
    ),
    "poison": (parse_poison, Poison("2", {"sink.2": SINK})),
    "progress": (
        parse_progress,
        Progress(
            driver="2",
            seq=14,
            generation=3,
            nodes=frozenset({"n3#1", "n4#1"}),
            positions={"source.0": 412, "sink.0": 410},
            failed={"sink.1": Failure.parse("node lost")},
            horizon=415,
            due=417,
            punctuation=400,
            checkpoint=400,
            bad_checkpoints=frozenset({380}),
            trimmed=390,
            not_kept=frozenset({"source.0"}),
            stuck="jobs fail: x",
            buffers={"memory": 1048576, "disk": 2048},
            jobs=93,
            drained=400,
            problems=("sources wait: in.0",),
            time=1760000123.4,
            turns=5210,
            turn_limit_s=670.0,
        ),
    ),
    "spec": (parse_spec, Spec('{"kind": "StreamTopology"}', "app:1")),
    "stats": (parse_stats, {"source.0": PartitionStats(41.5, 0)}),
    "waits": (parse_waits, Waits("3", "the driver waits for its checkpoint store: s3 is away")),
}


def test_every_file_is_read_and_every_record_has_one() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == READ.keys() | {"owner"}, (
        "`owner` is a uid and nothing else"
    )


@pytest.mark.parametrize("name", sorted(READ))
def test_a_record_of_version_0_1_0_reads(name: str) -> None:
    parse, expected = READ[name]
    assert parse((GOLDEN / name).read_bytes(), f"/root/{name}") == expected


@pytest.mark.parametrize(
    "name", sorted(set(READ) - {"desired-compressed", "driver", "incarnation", "paused", "stats"})
)
def test_a_record_of_a_later_version_reads_as_far_as_it_is_known(name: str) -> None:
    """Fields are added, and never change what they mean."""
    parse, expected = READ[name]
    raw = (GOLDEN / name).read_bytes()
    assert parse(raw[:-1] + b', "of_a_later_version": {"a": [1, null]}}', f"/root/{name}") == expected
