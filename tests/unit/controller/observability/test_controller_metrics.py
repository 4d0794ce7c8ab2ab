"""The controller's metrics say what the records say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.recovery_time import RestoreWork
from reprise.controller.observability.metrics.catalogue import METRICS
from reprise.controller.observability.metrics.control import topology_samples
from reprise.controller.observability.metrics.endpoint import RunMetrics, controller_registry
from reprise.controller.observability.metrics.look import Look
from reprise.controller.observability.metrics.metric import Place
from reprise.controller.status.query_state import run_state
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import CheckpointRecord
from reprise.scheduler import (
    Desired,
    Incident,
    Kind,
    LostNode,
    Node,
    PartitionStats,
    Phase,
    PlanRecord,
    Progress,
)
from reprise.spark_jobs.topology import StreamTopology, expand, load_text, override
from tests.support.watched import watched

TOPOLOGY = watched("20m", "40m", "120m")
"""The figures below are counted from its milli-CPU: 40 a query's partition, 20 each of what all queries need."""

RESOURCE = load_text(TOPOLOGY)
EXPANDED = expand(RESOURCE)
PLACED = {
    "tweets.0": "n1#1",
    "parser.0": "n2#1",
    "hot.0": "n3#1",
    "hot.1": "n4#1",
    "cold.0": "n1#1",
    "cold.1": "n2#1",
}
NODES = {f"n{i}#1": Node(f"n{i}", 1, 100) for i in range(1, 5)}
USABLE = frozenset(NODES)
POSITIONS = dict.fromkeys(PLACED, 40)
WELL = Observation(
    time=100.0,
    connected=True,
    nodes=NODES,
    progress=Progress("1", 1, 1, USABLE, POSITIONS, horizon=41, checkpoint=36, time=99.5),
    desired=Desired(1, 1, 0, "1", PLACED),
    checkpoint=CheckpointRecord(36, 90.0, 4096, 0.25),
    led=True,
)
LOST = tuple(LostNode(n, 100.0) for n in ("n3#1", "n4#1"))
INCIDENT = Incident("inc-000002", Kind.CORRELATED, Phase.WAITING, 100.0, 36, 2, 4, 101.0, lost=LOST)
SURVIVORS = {p: n for p, n in PLACED.items() if n in ("n1#1", "n2#1")}


def plan(number: int, **more: Any) -> PlanRecord:
    values = {"algorithm": "dp", "value": 9, "bound": 12, "queries": ["hot.0"]}
    fields: dict[str, Any] = {"added": {}, "left_out": {}, "seconds": 0.002} | more
    return PlanRecord(
        f"inc-000002-p{number}",
        "inc-000002",
        101.0 + number,
        "first",
        True,
        36,
        2,
        {},
        (),
        values,
        note="",
        **fields,
    )


def failure(*plans: PlanRecord, **more: Any) -> Observation:
    """Two nodes with all of `hot` are gone."""
    nodes = {name: node for name, node in NODES.items() if name in ("n1#1", "n2#1")}
    progress = Progress(
        "1", 2, 2, frozenset(nodes), dict.fromkeys(SURVIVORS, 40),
        dict.fromkeys(("hot.0", "hot.1"), Failure.parse("lost")), 42, checkpoint=36, time=120.0,
    )  # fmt: skip
    incident = replace(INCIDENT, plans=tuple(p.id for p in plans))
    values = {"nodes": nodes, "progress": progress, "desired": Desired(2, 2, 36, "1", SURVIVORS, True)}
    return replace(WELL, incident=incident, plans={p.id: p for p in plans}, **(values | more))


def values(seen: Observation, now: float = 120.0) -> dict[str, float]:
    """By metric and label values, without the topology's."""
    found = {}
    for sample in topology_samples(Look(RESOURCE, view_of(RESOURCE), run_state(EXPANDED, seen), 10.0), now):
        assert sample.labels["topology"] == "streams/watched"
        labels = [value for name, value in sample.labels.items() if name != "topology"]
        found[" ".join([sample.metric.removeprefix("reprise_"), *labels])] = float(sample.value)
    return found


def gauges(resource: StreamTopology, seen: Observation) -> dict[str, Any]:
    """By metric alone."""
    look = Look(resource, view_of(resource), run_state(EXPANDED, seen), 10.0)
    return {sample.metric: sample.value for sample in topology_samples(look, 100.0)}


def test_all_well() -> None:
    found = values(WELL, now=100.0)
    assert found["availability_ratio"] == 1.0
    assert (found["nodes ready"], found["nodes missing"], found["partitions caught_up"]) == (4, 0, 6)
    assert (found["queries available high"], found["queries available low"]) == (2, 2)
    assert (found["checkpoint_age_seconds"], found["checkpoint_interval_seconds"]) == (10.0, 3.0)
    assert (found["checkpoint_size_bytes"], found["checkpoint_duration_seconds"]) == (4096, 0.25)
    assert found["driver_heartbeat_age_seconds"] == 0.5
    assert (found["incident_age_seconds"], found["coordinator_present"], found["paused"]) == (0, 1, 0)
    assert found["free_cpu_cores"] == pytest.approx(0.32 - 0.2)


def test_the_lag_counts_what_is_due_and_not_only_what_was_released() -> None:
    assert WELL.progress is not None
    found = values(replace(WELL, progress=replace(WELL.progress, due=1040)))
    assert (found["lag_batches high"], found["lag_seconds high"]) == (1000, 500.0)
    assert values(WELL)["lag_seconds low"] == 0.5


def test_a_failure_without_room() -> None:
    found = values(failure(plan(1, left_out={"hot.0": "no room", "hot.1": "no room"})))
    assert found["availability_ratio"] == pytest.approx(4 / 22)
    assert (found["incident_open correlated"], found["incident_open blocking"]) == (1, 0)
    assert (found["incident_phase waiting"], found["incident_age_seconds"]) == (1, 20)
    assert found["incident_lost_nodes"] == 2
    assert (found["queries waiting high"], found["partitions waiting"], found["nodes missing"]) == (2, 2, 2)
    assert (found["waiting_queries_that_fit"], found["waiting_cpu_cores"]) == (0, pytest.approx(0.08))
    # 20 + 20 milli-CPU are free, and each needs 40 on one node
    assert found["waiting_queries_without_a_node"] == 2
    assert (found["plan_infeasible"], found["plans_total dp nothing"]) == (1, 1)
    assert found["plan_gap_ratio"] == 0.25


def test_capacity_that_has_come_makes_waiting_queries_fit_before_the_driver_uses_it() -> None:
    nodes = {n: NODES[n] for n in ("n1#1", "n2#1")} | {"n5#1": Node("n5", 1, 100)}
    found = values(failure(plan(1, left_out={"hot.0": "no room"}), nodes=nodes))
    assert (found["nodes joining"], found["waiting_queries_that_fit"]) == (1, 2)
    assert found["waiting_queries_without_a_node"] == 0


def test_a_query_fits_node_by_node_and_not_only_in_sum() -> None:
    """20 + 20 milli-CPU are free on two nodes; a partition of 30 has room on neither."""
    costs = dict.fromkeys(PLACED, 30) | {"hot.0": 30, "hot.1": 30}
    seen = failure(plan(1))
    assert seen.incident is not None
    found = values(replace(seen, incident=replace(seen.incident, costs=costs)))
    assert (found["free_cpu_cores"], found["waiting_queries_that_fit"]) == (pytest.approx(0.04), 0)
    assert found["waiting_queries_without_a_node"] == 2


def test_progress_rises_with_what_is_restored_and_replayed_and_with_nothing_else() -> None:
    before = failure(plan(1))
    assert before.progress is not None and before.desired is not None
    others = replace(before.progress, positions=dict.fromkeys(SURVIVORS, 55), horizon=56)
    stands = values(before)["recovery_progress_batches"]
    assert values(replace(before, progress=others))["recovery_progress_batches"] == stands
    placed = replace(before.desired, assignment=SURVIVORS | {"hot.0": "n1#1"})
    at_work = replace(
        before.progress,
        positions={**before.progress.positions, "hot.0": 36},
        failed={"hot.1": Failure.parse("lost")},
    )
    restored = replace(before, desired=placed, progress=at_work)
    found = values(restored)
    assert found["partitions catching_up"] == 1
    assert found["recovery_progress_batches"] > stands


def test_restoring_and_poisoned_partitions() -> None:
    seen = failure(plan(1, added={"hot.0": "n1#1"}, left_out={"hot.1": "no room"}))
    assert seen.progress is not None and seen.desired is not None
    desired = replace(seen.desired, assignment=SURVIVORS | {"hot.0": "n1#1"})
    progress = replace(
        seen.progress,
        failed={"hot.1": Failure.parse("lost"), "cold.1": Failure.parse("poison: operator cold: ValueError")},
    )
    found = values(replace(seen, desired=desired, progress=progress))
    assert {found[f"partitions {state}"] for state in ("restoring", "poisoned", "waiting")} == {1}
    assert (found["plan_infeasible"], found["plans_total dp partial"]) == (0, 1)


def test_closed_incidents_and_complete_plans_are_counted() -> None:
    closed = {"inc-000002": replace(INCIDENT, kind=Kind.BLOCKING, phase=Phase.CLOSED, closed_at=130.0)}
    done = plan(1, added={"hot.0": "n1#1"})
    found = values(replace(WELL, closed=closed, plans={done.id: done}))
    assert (found["incidents_total blocking"], found["plans_total dp complete"]) == (1, 1)
    assert found["plan_infeasible"] == 0


def test_marked_batches_are_counted_without_what_is_whole_between_two_gaps_and_once() -> None:
    first = replace(INCIDENT, marked={"hot.0": ((43, 49), (60, 66)), "cold.1": ((50, 50),)})
    closed = replace(first, phase=Phase.CLOSED, closed_at=130.0)
    assert values(replace(WELL, incident=first))["marked_batches"] == 15
    late = replace(INCIDENT, id="inc-000009", marked={"hot.0": ((64, 70),)})  # it was told of both
    seen = replace(WELL, incident=late, closed={closed.id: closed})
    assert values(seen, 140.0)["marked_batches"] == 7 + 11 + 1
    assert values(seen, 130.0 + 901.0)["marked_batches"] == 7


def test_every_plan_is_counted_whatever_it_names_as_its_algorithm() -> None:
    plans = [plan(1), plan(2), plan(3)]
    names = ("reductions", "dp", "of tomorrow")
    named = [replace(p, plan={**p.plan, "algorithm": name}) for p, name in zip(plans, names, strict=True)]
    found = values(replace(WELL, plans={p.id: p for p in named}))
    assert {k: v for k, v in found.items() if k.startswith("plans_total") and v} == {
        "plans_total reductions nothing": 1, "plans_total dp nothing": 1, "plans_total other nothing": 1,
    }  # fmt: skip


def test_a_topology_that_has_not_started_and_one_that_has_ended() -> None:
    nothing = values(Observation(100.0), now=100.0)
    assert (nothing["driver_heartbeat_age_seconds"], nothing["checkpoint_age_seconds"]) == (90.0, 90.0)
    assert (nothing["queries waiting high"], nothing["partitions waiting"]) == (2, 6)
    assert nothing["coordinator_present"] == 0
    assert WELL.progress is not None
    assert values(replace(WELL, progress=replace(WELL.progress, done=True)))["checkpoint_age_seconds"] == 0


def test_a_run_serves_every_metric_of_the_controller() -> None:
    metrics = RunMetrics(RESOURCE)
    assert metrics.looks() == [] and metrics.session == "suspended"
    metrics.watch(run_state(EXPANDED, failure(plan(1))))
    registry = controller_registry("run", metrics.looks, lambda: metrics.session, specs=metrics.specs)
    served = {family.name for family in registry.collect()}
    expected = {m.name.removesuffix("_total") for m in METRICS if Place.CONTROLLER in m.places}
    assert expected <= served
    labels = {"component": "run", "state": "connected"}
    assert registry.get_sample_value("reprise_zookeeper_session", labels) == 1


def test_a_refused_spec_is_said_also_where_nothing_runs_yet() -> None:
    registry = controller_registry(
        "operator", list, lambda: "connected", specs=lambda: {"shop/a": True, "shop/b": False}
    )
    told = {
        t: registry.get_sample_value("reprise_spec_refused", {"topology": t}) for t in ("shop/a", "shop/b")
    }
    assert told == {"shop/a": 1, "shop/b": 0}


def test_an_operator_that_waits_for_the_lease_says_so_and_nothing_else() -> None:
    registry = controller_registry("operator", list, lambda: "lost", leading=lambda: False)
    assert registry.get_sample_value("reprise_leader", {"component": "operator"}) == 0
    assert (
        registry.get_sample_value("reprise_zookeeper_session", {"component": "operator", "state": "lost"})
        is None
    )


def test_partitions_without_their_standby_are_counted() -> None:
    active = override(RESOURCE, {"operators[hot].availability": "active-standby"})
    assert WELL.progress is not None
    seen = replace(WELL, progress=replace(WELL.progress, standbys={"hot.1": 40}))
    for resource, missing in ((RESOURCE, 0), (active, 1)):
        found = gauges(resource, seen)
        assert found["reprise_standbys_missing"] == missing
        assert found["reprise_standbys_wanted"] == (0 if resource is RESOURCE else 2)
        assert found["reprise_standbys_not_apart"] == 0
    lost = {"hot.0": Failure(FailureKind.POISON, "raised")}
    seen = replace(WELL, progress=replace(WELL.progress, standbys={"hot.1": 40}, failed=lost))
    found = gauges(active, seen)
    assert found["reprise_standbys_missing"] == 0, "none is placed for one whose code raised"


def test_standbys_that_are_not_known_to_be_in_another_failure_domain_are_counted() -> None:
    named = {
        "operators[hot].availability": "passive-standby",
        "operators[hot].standby": {"failureDomain": "zone"},
    }
    active = override(RESOURCE, named)
    assert WELL.desired is not None
    first, second, *_ = WELL.nodes
    at = {**WELL.desired.assignment, "hot.0": first, "hot.1": second}
    desired = replace(WELL.desired, assignment=at, standbys={"hot.0": second, "hot.1": first})
    for zones, count in ((("x", "y"), 0), (("x", "x"), 2), (("x", None), 2)):
        nodes = {
            node: replace(x, labels={} if zone is None else {"zone": zone})
            for (node, x), zone in zip(WELL.nodes.items(), zones, strict=False)
        }
        seen = replace(WELL, desired=desired, nodes={**WELL.nodes, **nodes})
        found = gauges(active, seen)
        assert found["reprise_standbys_not_apart"] == count


def test_partitions_without_their_upstream_backup_are_counted() -> None:
    assert WELL.progress is not None
    seen = replace(WELL, progress=replace(WELL.progress, unbacked=frozenset({"hot.1", "hot.0"})))
    for state, missing in ((WELL, 0), (seen, 2), (replace(WELL, progress=None), 0)):
        found = gauges(RESOURCE, state)
        assert found["reprise_upstream_backups_missing"] == missing


def test_expected_seconds_of_a_recovery_and_objectives_that_are_missed() -> None:
    """n1 has tweets.0 and cold.0, and takes 2 + 1 s beyond the 7 that nobody has measured; the others 1 s."""
    assert WELL.progress is not None
    stats = {p: PartitionStats(1.0, 0, RestoreWork(100, 100.0)) for p in PLACED}
    seen = replace(WELL, stats={**stats, "tweets.0": PartitionStats(1.0, 0, RestoreWork(200, 100.0))})
    resource, found = (
        override(RESOURCE, {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"}),
        {},
    )
    for objective in (None, "10s", "9s"):
        changes = {} if objective is None else {"operators[hot].output.recovery": {"objective": objective}}
        own = override(resource, changes)
        samples = gauges(own, seen)
        assert samples["reprise_recovery_expected_seconds"] == pytest.approx(10.0)
        found[objective] = samples["reprise_recovery_objectives_missed"]
    assert found == {None: 0, "10s": 0, "9s": 2}
    for unknown in (WELL, replace(seen, progress=None)):
        samples = gauges(resource, unknown)
        assert samples["reprise_recovery_expected_seconds"] == 0


def test_expected_seconds_of_a_recovery_have_what_a_copy_does_not_have() -> None:
    """An active standby of `hot` has nothing to do again; a passive one up to four batches of 50 rows, 100 rows a second."""
    assert WELL.progress is not None
    stats = {p: PartitionStats(1.0, 0, RestoreWork(1000, 100.0), 100.0) for p in ("hot.0", "hot.1")}
    quiet = {p: PartitionStats(1.0, 0, RestoreWork(0)) for p in PLACED if p not in stats}
    at = {p: WELL.progress.positions[p] for p in stats}
    seen = replace(WELL, stats=stats | quiet, progress=replace(WELL.progress, standbys=at))
    expected = {}
    for way, standby in (
        ("active-standby", {}),
        ("passive-standby", {"operators[hot].standby": {"every": 4}}),
    ):
        changes = {f"operators[{o.name}].deterministic": True for o in RESOURCE.operators}
        changes |= {"operators[hot].availability": way, "batch.interval": "500ms"} | standby
        resource = override(RESOURCE, changes)
        samples = gauges(resource, seen)
        expected[way] = samples["reprise_recovery_expected_seconds"]
    assert expected == {"active-standby": pytest.approx(7.0), "passive-standby": pytest.approx(9.0)}


def test_jobs_that_fail_again_and_again_are_said() -> None:
    assert WELL.progress is not None
    assert values(WELL)["jobs_failing"] == 0
    assert (
        values(replace(WELL, progress=replace(WELL.progress, stuck="node n1#1: no space")))["jobs_failing"]
        == 1
    )
