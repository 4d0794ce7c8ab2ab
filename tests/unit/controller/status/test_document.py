"""The status document: what it says of a topology in good and bad moments, and that all of it is written down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, plan_to_json, solve
from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.status import (
    DocumentError,
    StatusDocument,
    document,
    observation,
    parse_document,
    plain,
    records,
)
from reprise.controller.status.build import MAX_GAPS
from reprise.controller.status.model import RebalancingView, SkipView
from reprise.controller.status.partition_state import NodeState, PartitionState
from reprise.controller.status.query_state import Status
from reprise.controller.topology_view import with_promises
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import (
    Desired,
    Event,
    Incident,
    Kind,
    LostNode,
    Node,
    PartitionStats,
    Phase,
    PlanRecord,
    Poison,
    Progress,
    QueryTimeline,
)
from reprise.scheduler.incident import Candidate, Trigger
from reprise.scheduler.model import Moving, Rebalancing, SkipWish
from reprise.spark_jobs.topology import Topology, load_text

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: chain}
spec:
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 10, interval: 500ms, batches: 4, tags: 10}}
  operators:
    - name: clean
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 2
      with: {keys: [tweet]}
      inputs: [{from: tweets, by: [tweet]}]
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 2
      with: {keys: [tweet]}
      inputs: [{from: clean, forward: true}]
      output: {priority: 1, priorities: {"1": 3}}
"""
NODES = {f"n{i}#1": Node(f"n{i}", 1, 1000) for i in (1, 2, 3)}
PLACES = {"tweets.0": "n1#1", "clean.0": "n1#1", "count.0": "n1#1", "clean.1": "n2#1", "count.1": "n3#1"}
DESIRED = Desired(1, 1, 0, "1", PLACES)
PROGRESS = Progress(
    "1",
    1,
    1,
    frozenset(NODES),
    dict.fromkeys(PLACES, 10),
    horizon=10,
    checkpoint=6,
    buffers={"memory": 5, "disk": 0},
)
WELL = Observation(100.0, True, NODES, PROGRESS, desired=DESIRED)


def _plan(free: int) -> PlanRecord:
    """Of two lost partitions for what is free on one node."""
    instance = Instance(
        free,
        (PartitionCost("clean.1", 40), PartitionCost("count.1", 30)),
        (FailedQuery("count.1", 3, ("clean.1", "count.1")),),
        (NodeCapacity("n1#1", free),),
    )
    answer = solve(instance, "auto", 1.0)
    return PlanRecord(
        id="inc-1-p1",
        incident="inc-1",
        time=52.0,
        trigger=Trigger.FIRST,
        rollback=True,
        checkpoint=6,
        generation=2,
        free={"n1#1": free},
        candidates=(Candidate("count.1", 3, 70),),
        plan=plan_to_json(answer),
        added=dict(answer.placement or {}),
        seconds=0.01,
        left_out={e.query: e.reason for e in answer.excluded},
        pending=("clean.1", "count.1"),
    )


INCIDENT = Incident(
    "inc-1",
    Kind.CORRELATED,
    Phase.WAITING,
    50.0,
    6,
    2,
    3,
    51.0,
    lost=(LostNode("n2#1", 50.0), LostNode("n3#1", 50.5)),
    plans=("inc-1-p1",),
    queries={"count.1": QueryTimeline(50.0)},
    costs={"clean.1": 40, "count.1": 30},
    events=(
        Event.of(50.0, "opened"),
        Event.of(50.0, "node-lost", "n2#1"),
        Event.of(50.0, "queries-lost", "count.1"),
        Event.of(52.0, "plan", "inc-1-p1 first"),
    ),
)
BURST = replace(
    WELL,
    nodes={"n1#1": NODES["n1#1"]},
    progress=replace(
        PROGRESS, nodes=frozenset({"n1#1"}), positions={"tweets.0": 10, "clean.0": 9, "count.0": 6}
    ),
    incident=INCIDENT,
    plans={"inc-1-p1": _plan(50)},
)


def test_all_well(topology: Topology) -> None:
    found = document(topology, WELL)
    assert found.phase == "steady"
    assert [q.id for q in found.queries.items] == ["count.1", "count.0"]
    assert found.queries.share == 1.0
    assert {p.state for p in found.partitions} == {PartitionState.RUNNING}
    assert [n.state for n in found.nodes] == [NodeState.READY] * 3
    assert (found.incident, found.plan, found.last_incident) == (None, None, None)
    assert found.checkpoint is not None
    assert (found.checkpoint.newest, found.checkpoint.age_batches, found.checkpoint.enabled) == (6, 4, True)
    assert [(p.share, p.bound) for p in found.availability.points] == [(1.0, 1.0)]


def test_graph_has_every_operator_partition_and_edge(topology: Topology) -> None:
    graph = document(topology, WELL).graph
    assert [(o.name, o.kind, o.layer) for o in graph.operators] == [
        ("tweets", "source", 0),
        ("clean", "operator", 1),
        ("count", "output", 2),
    ]
    assert graph.operators[1].partitions == ("clean.0", "clean.1")
    assert [(e.origin, e.target, e.label) for e in graph.edges] == [
        ("tweets", "clean", "by tweet"),
        ("clean", "count", "forward"),
    ]


def test_a_burst_says_what_is_lost_why_it_waits_and_what_capacity_it_needs(topology: Topology) -> None:
    found = document(topology, BURST)
    query = found.queries.items[0]
    assert (query.id, query.state, query.lost_at) == ("count.1", Status.WAITING, 50.0)
    assert query.missing == ("clean.1", "count.1")
    assert found.plan is not None
    left_out = found.plan.left_out[0]
    assert (left_out.query, left_out.code) == ("count.1", "too-large")
    assert (left_out.missing_capacity, left_out.enters_at) == (20, 70)
    assert left_out.missing == ("clean.1", "count.1")  # by the topology: the record names the failed once
    assert [n.state for n in found.nodes] == [NodeState.READY, NodeState.LOST, NodeState.LOST]
    partition = {p.id: p for p in found.partitions}["clean.1"]
    assert (partition.state, partition.cost) == (PartitionState.WAITING, 40)
    assert (partition.node, partition.position, partition.reason) == (None, None, "lost with n2#1")


def test_a_survivor_behind_catches_up_or_starves(topology: Topology) -> None:
    """count.0 has all it needs; the same lag downstream of a lost partition is no catching up."""
    found = {p.id: p for p in document(topology, BURST).partitions}
    assert found["count.0"].state is PartitionState.CATCHING_UP
    assert BURST.progress is not None
    places = {**PLACES, "count.1": "n1#1"}
    moved = replace(
        BURST,
        desired=replace(DESIRED, assignment=places),
        progress=replace(BURST.progress, positions={**BURST.progress.positions, "count.1": 6}),
    )
    found = {p.id: p for p in document(topology, moved).partitions}
    assert found["count.1"].state is PartitionState.STARVED
    assert found["count.1"].reason == "needs the output of clean.1"


def test_after_the_incident_everything_counts_again(topology: Topology) -> None:
    closed = replace(
        INCIDENT,
        phase=Phase.CLOSED,
        closed_at=60.0,
        queries={"count.1": QueryTimeline(50.0, 55.0, 56.0)},
        events=(*INCIDENT.events, Event.of(56.0, "queries-caught-up", "count.1"), Event.of(60.0, "closed")),
    )
    found = document(topology, replace(WELL, closed={"inc-1": closed}, plans=BURST.plans))
    assert found.last_incident is not None
    assert (found.last_incident.queries_lost, found.last_incident.queries_back) == (1, 1)
    assert [p.share for p in found.availability.points] == [0.25, 0.25, 1.0, 1.0, 1.0]


def test_nothing_known_yet_and_nothing_known_any_more(topology: Topology) -> None:
    found = document(topology, Observation(1.0))
    assert (found.phase, found.connected, found.checkpoint, found.batch) == ("starting", False, None, 0)
    assert {p.state for p in found.partitions} == {PartitionState.WAITING}
    lost = document(topology, replace(BURST, connected=False))
    assert not lost.connected
    assert lost.incident is not None


def test_a_look_alone_says_that_it_cannot_tell_whether_what_is_behind_advances(topology: Topology) -> None:
    behind = replace(
        WELL, progress=replace(PROGRESS, horizon=57), still={"count.0": WELL.time, "count.1": WELL.time}
    )
    assert document(topology, behind).problems == ()  # somebody else may have watched
    alone = document(topology, replace(behind, watched_since=WELL.time)).problems
    assert len(alone) == 1 and "look again" in alone[0]
    assert document(topology, replace(behind, watched_since=WELL.time - 5)).problems == ()
    assert document(topology, replace(WELL, watched_since=WELL.time)).problems == ()
    lost = replace(PROGRESS, horizon=57, positions={"tweets.0": 57, "count.0": 6, "count.1": 57})
    restored = document(topology, replace(behind, progress=lost, watched_since=WELL.time))
    assert [q.missing for q in restored.queries.items if q.id == "count.0"] == [("clean.0",)]
    assert restored.problems == (), "why it is behind is known"


def test_a_plan_record_that_is_no_plan_leaves_its_fields_unknown(topology: Topology) -> None:
    broken = replace(_plan(50), plan={}, left_out={"count.1": "no room"})
    plan = document(topology, replace(BURST, plans={"inc-1-p1": broken})).plan
    assert plan is not None
    (left_out,) = plan.left_out
    assert (plan.algorithm, plan.bound, left_out.reason, left_out.code) == (None, None, "no room", None)


def test_it_is_json_as_it_is_and_can_be_read_back(topology: Topology) -> None:
    text = json.dumps(plain(document(topology, BURST)))
    assert json.loads(text)["partitions"][0]["state"] == "running"
    assert parse_document(json.loads(text)) == document(topology, BURST)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other/v9"}, "format: expected"),
        ({"batch": "many"}, "batch: "),
        ({"nodes": None}, "nodes: "),
    ],
)
def test_what_is_no_document_is_refused_with_the_field(
    topology: Topology, change: dict[str, Any], words: str
) -> None:
    value = {**plain(document(topology, WELL)), **change}
    with pytest.raises(DocumentError, match=words):
        parse_document(value)


def test_records_travel_without_loss() -> None:
    seen = replace(
        BURST,
        closed={"inc-0": replace(INCIDENT, id="inc-0", closed_at=3.0, phase=Phase.CLOSED)},
        stats={"clean.0": PartitionStats(40.5, 7)},
        checkpoints=frozenset({3, 6}),
        poison=Poison("1", {"count.0": "poison: no"}),
        paused=False,
        problems=("disk is full",),
    )
    assert observation(json.dumps(records(seen)).encode(), "test") == seen


def test_records_that_are_damaged_are_refused_with_the_field() -> None:
    raw = {**records(BURST), "desired": {"seq": 1}}
    with pytest.raises(RecordError, match=r"test: desired: .*generation"):
        observation(json.dumps(raw).encode(), "test")


def test_every_field_is_described() -> None:
    text = (Path(__file__).parents[4] / "docs" / "status-document.md").read_text()
    described = set(re.findall(r"^\| `([\w.\[\]]+)`", text, re.MULTILINE))
    assert described == set(_paths(StatusDocument))


def _paths(kind: type, prefix: str = "") -> Iterator[str]:
    """Every field of the document, lists marked `[]`; shared types once, below the first name."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        inner, many = _inner(hint)
        path = f"{prefix}{field.name}{'[]' if many else ''}"
        yield path
        if inner is not None and path not in ("plan", "last_incident"):
            yield from _paths(inner, f"{path}.")


def _inner(hint: Any) -> tuple[type | None, bool]:
    """The dataclass within a type hint, and whether it is a tuple of them."""
    if is_dataclass(hint) and isinstance(hint, type):
        return hint, False
    many = getattr(hint, "__origin__", None) is tuple
    found = [_inner(argument)[0] for argument in get_args(hint) if argument is not Ellipsis]
    return next((kind for kind in found if kind is not None), None), many


def test_it_is_said_who_could_be_fed_again_by_what_it_reads(topology: Topology) -> None:
    assert WELL.progress is not None
    progress = replace(WELL.progress, backed=frozenset({"count.0"}), unbacked=frozenset({"count.1"}))
    found = {p.id: p.backed for p in document(topology, replace(WELL, progress=progress)).partitions}
    assert (found["count.0"], found["count.1"], found["clean.0"]) == (True, False, None)


def test_what_is_promised_of_each_output_is_in_the_graph_with_who_limits_it() -> None:
    resource = load_text(TOPOLOGY, changes={"operators[count].deterministic": False})
    found = {o.name: o for o in document(with_promises(resource), WELL).graph.operators}
    outputs = {o.name for o in resource.operators if o.output is not None}
    assert {name for name, o in found.items() if o.promise is not None} == outputs
    count = found["count"]
    assert (count.guarantee, count.limited_by) == ("precise, by checkpoint", ("count",))
    assert count.limited_because == "not deterministic: count"
    assert (
        parse_document(plain(document(with_promises(resource), WELL))).graph
        == document(with_promises(resource), WELL).graph
    )
    plainly = {o.name: o for o in document(with_promises(load_text(TOPOLOGY)), WELL).graph.operators}
    assert (plainly["count"].guarantee, plainly["count"].limited_because) == ("precise", "")


def test_what_an_incident_has_skipped_is_in_the_document(topology: Topology) -> None:
    assert BURST.incident is not None
    gaps = ((3, 12), (20, 22))
    gap = replace(BURST.incident, skipped={"count.0": ((3, 9),)}, marked={"count.0": gaps})
    found = document(topology, replace(BURST, incident=gap)).incident
    assert found is not None
    assert (found.skipped, found.marked) == ({"count.0": (3, 9)}, {"count.0": (3, 22)})
    assert (found.skipped_spans, found.gaps) == ({"count.0": ((3, 9),)}, {"count.0": gaps})
    assert parse_document(plain(document(topology, replace(BURST, incident=gap)))).incident == found


def test_a_query_names_the_newest_batches_that_may_lack_rows_of_all_incidents(topology: Topology) -> None:
    assert all((q.gaps, q.gaps_total) == ((), 0) for q in document(topology, BURST).queries.items)
    assert BURST.incident is not None
    now = replace(BURST.incident, marked={"count.0": ((43, 49), (60, 66))})
    before = replace(BURST.incident, id="inc-0", closed_at=40.0, marked={"count.0": ((48, 52), (3, 4))})
    seen = replace(BURST, incident=now, closed={before.id: before})
    found = {q.id: (q.gaps, q.gaps_total) for q in document(topology, seen).queries.items}
    assert found == {"count.0": (((3, 4), (43, 52), (60, 66)), 3), "count.1": ((), 0)}
    many = tuple((10 * k, 10 * k + 1) for k in range(MAX_GAPS + 5))
    seen = replace(BURST, incident=replace(now, marked={"count.1": many}))
    (query,) = (q for q in document(topology, seen).queries.items if q.gaps)
    assert (query.id, query.gaps, query.gaps_total) == ("count.1", many[5:], MAX_GAPS + 5)
    assert parse_document(plain(document(topology, seen))).queries == document(topology, seen).queries


def test_a_wish_to_skip_stands_until_what_it_is_about_is_at_work(topology: Topology) -> None:
    assert document(topology, BURST).skips == ()
    asked = replace(BURST, wishes={"count.1": SkipWish("one"), "gone.0": SkipWish("two")})
    assert document(topology, asked).skips == (SkipView("count.1", False, ()),)
    desired = replace(DESIRED, skips={"count.1": "one"}, anew={"count.1": "one", "clean.1": "one"})
    taken = replace(asked, wishes={}, desired=desired)
    assert document(topology, taken).skips == (SkipView("count.1", True, ("clean.1", "count.1")),)
    assert document(topology, replace(taken, progress=PROGRESS)).skips == ()


def test_a_node_above_its_cap_says_how_much_slower_it_is(topology: Topology) -> None:
    assert all(node.slowdown is None for node in document(topology, WELL).nodes)
    above = replace(DESIRED, demand={"tweets.0": 900, "clean.0": 600, "clean.1": 850})
    found = {n.name: n.slowdown for n in document(topology, replace(WELL, desired=above)).nodes}
    assert found == {"n1": 1.5, "n2": 1.0, "n3": None}


def test_load_that_is_levelled_is_in_the_document_until_it_is_over(topology: Topology) -> None:
    nodes = frozenset(NODES)
    due, left = Rebalancing(nodes, 130.0, 2), Rebalancing(nodes, 130.0, 1, {"clean.1": "n1#1"})
    moving = Moving({"count.0": "n3#1"}, 7, rebalances=True)
    for desired, said in (
        (replace(DESIRED, rebalancing=None), None),
        (replace(DESIRED, rebalancing=due), RebalancingView({}, 0, 130.0)),
        (replace(DESIRED, rebalancing=left, moving=moving), RebalancingView(moving.to, 1, None)),
        (replace(DESIRED, rebalancing=replace(due, rounds=0)), None),
    ):
        assert document(topology, replace(WELL, desired=desired)).rebalancing == said
        assert document(topology, replace(BURST, desired=desired)).rebalancing is None, (
            "an incident comes first"
        )


def test_a_partition_says_its_throughput_lag_checkpoint_and_error(topology: Topology) -> None:
    stats = {
        p: PartitionStats(1.0, input_rows_s=12.5, watermark=7_250_000) for p in ("clean.0", "clean.1")
    } | {"count.0": PartitionStats(1.0, input_ended=True)}
    positions = {p: 10 for p in PLACES if p != "clean.1"} | {"count.0": 7}
    failed = {"clean.1": Failure(FailureKind.POISON, "KeyError")}
    progress = replace(PROGRESS, positions=positions, failed=failed, lines={"count.0": 4})
    found = document(topology, replace(WELL, progress=progress, stats=stats))
    views = {p.id: p for p in found.partitions}
    assert found.batch_interval_s == 0.5
    assert (views["count.0"].lag, views["count.0"].lag_s, views["clean.1"].lag_s) == (3, 1.5, None)
    assert (views["clean.0"].input_rows_s, views["clean.1"].input_rows_s) == (12.5, None), "not at work"
    assert (views["clean.0"].watermark, views["clean.1"].watermark) == (7.25, None), "not at work"
    assert (views["count.0"].watermark, views["count.0"].input_ended) == (None, True)
    assert not any(views[p].input_ended for p in views if p != "count.0")
    assert (views["count.0"].checkpoint, views["count.1"].checkpoint) == (4, 6)
    assert (views["clean.1"].error, views["clean.0"].error) == ("poison: KeyError", None)
    assert {q.lag_s for q in found.queries.items if q.id == "count.0"} == {1.5}
