"""The pure parts of the adapters: the window of statistics, the view of a topology, crash points, operations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from reprise.algorithms.recovery_time import RestoreWork
from reprise.controller.coordinator.stats_window import WINDOW_S, StatsWindow
from reprise.controller.coordinator.transaction import Versions, operations
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.records import parse_stats
from reprise.scheduler import (
    AddPlan,
    CloseIncident,
    Decision,
    Outcome,
    PartitionStats,
    Step,
    Strategy,
    WriteDesired,
    WriteIncident,
    WritePoison,
)
from reprise.scheduler.model import Order, Scope, TopologyView
from reprise.spark_jobs.topology import choices, from_json, load_topology
from tests.support.crashing_coordinator import CrashPoint
from tests.support.record_samples import DESIRED, INCIDENT, PLAN, POISON

EXAMPLES = Path(__file__).parents[4] / "examples"


def stats(cpu: float) -> bytes:
    return f'{{"sink.0": {{"cpu_milli": {cpu}}}}}'.encode()


def test_the_load_before_a_failure_is_not_forgotten() -> None:
    window = StatsWindow()
    assert window.add(0.0, None, parse_stats) == {}
    # catching up after the start, normal running, then the failure that nobody has noticed yet
    for k, cpu in enumerate([900.0, 300.0, 310.0, 320.0, 0.0, 0.1]):
        found = window.add(3.0 * k, stats(cpu), parse_stats)
        window.add(3.0 * k + 0.3, stats(cpu), parse_stats)  # the same record, read again, counts once
    assert found["sink.0"].cpu_milli == 310.0
    late = window.add(15.0 + WINDOW_S, stats(10.0), parse_stats)
    assert late["sink.0"].cpu_milli == 10.0


def test_statistics_that_stay_are_kept_however_old() -> None:
    window = StatsWindow()
    window.add(0.0, stats(300.0), parse_stats)
    assert window.add(1000.0, stats(300.0), parse_stats)["sink.0"].cpu_milli == 300.0
    window.add(1001.0, stats(100.0), parse_stats)
    window.add(1002.0, stats(50.0), parse_stats)
    assert window.add(2000.0, stats(50.0), parse_stats)["sink.0"].cpu_milli == 50.0, "the newest alone"


def test_a_partition_that_some_records_lack_has_the_median_of_the_others() -> None:
    window = StatsWindow()
    for k, cpu in enumerate([100.0, 300.0, 200.0, 50.0, 400.0]):
        extra = '"late.0": {"cpu_milli": 7, "state_bytes": 5}, ' if k else ""
        record = f'{{{extra}"sink.0": {{"cpu_milli": {cpu}, "state_bytes": {k}}}}}'
        found = window.add(3.0 * k, record.encode(), parse_stats)
    assert found == {"late.0": PartitionStats(7.0, 5), "sink.0": PartitionStats(200.0, 4)}


def test_what_a_recovery_would_have_to_do_is_of_the_newest_record() -> None:
    """It is of no use to know what it was before: nothing of it is typical."""
    window = StatsWindow()
    works: list[dict[str, object]] = [{"rows": 5}, {"rows": 70, "rows_s": 10.0, "bytes_s": 2000.0}]
    for k, restore in enumerate(works):
        record = {"sink.0": {"cpu_milli": 1.0, "restore": restore}, "left.0": {"cpu_milli": 1.0}}
        found = window.add(3.0 * k, json.dumps(record).encode(), parse_stats)
        assert found == {
            "sink.0": PartitionStats(1.0, restore=RestoreWork(**restore)),  # type: ignore[arg-type]
            "left.0": PartitionStats(1.0),
        }
    found = window.add(9.0, b'{"left.0": {"cpu_milli": 1.0}}', parse_stats)
    assert found["sink.0"].restore is None, "it is not at work"


def test_the_view_of_a_topology() -> None:
    resource = load_topology(EXAMPLES / "minimal.yaml")
    view = view_of(resource)
    ids = [p.id for p in view.partitions]
    for k, partition in enumerate(view.partitions):
        assert set(partition.upstream) <= set(ids[:k])  # topological order
        assert partition.cpu_milli >= 1
    assert all(query.id in query.partitions for query in view.queries)
    assert view.deterministic
    policy = policy_of(resource, 0.5, 7.0)
    assert policy.strategy is Strategy(resource.recovery.strategy)
    assert (policy.settle_s, policy.driver_grace_s) == (0.5, 7.0)
    assert policy.nodes_wanted == resource.nodes.count


def test_crash_points() -> None:
    assert CrashPoint.parse("commit:plan-first") == CrashPoint("commit", "plan-first")
    CrashPoint.parse("decide:*").hit("commit", "plan-first")  # another moment: nothing happens
    CrashPoint.parse("decide:start").hit("decide", "plan-first")  # another rule
    for text in ("plan-first", "later:plan-first", "commit:"):
        with pytest.raises(ValueError, match="not written"):
            CrashPoint.parse(text)


class Recorded:
    """Stands for a transaction."""

    def __init__(self) -> None:
        self.operations: list[tuple[object, ...]] = []

    def create(self, path: str, data: bytes) -> None:
        self.operations.append(("create", path))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self.operations.append(("set", path, version))

    def delete(self, path: str, version: int) -> None:
        self.operations.append(("delete", path, version))

    def check(self, path: str, version: int) -> None:
        self.operations.append(("check", path, version))


@pytest.mark.parametrize(
    ("steps", "versions", "expected"),
    [
        ([WriteDesired(DESIRED)], Versions(), [("create", "/r/desired")]),
        ([WriteDesired(DESIRED)], Versions(desired=4), [("set", "/r/desired", 4)]),
        (
            [AddPlan(PLAN), WriteIncident(INCIDENT)],
            Versions(desired=4, incident=2),
            [("check", "/r/desired", 4), ("create", f"/r/plans/{PLAN.id}"), ("set", "/r/incident", 2)],
        ),
        (
            [WriteDesired(DESIRED), CloseIncident(INCIDENT), WritePoison(POISON)],
            Versions(desired=4, incident=2, poison=0),
            [
                ("set", "/r/desired", 4),
                ("create", f"/r/incidents/{INCIDENT.id}"),
                ("delete", "/r/incident", 2),
                ("set", "/r/poison", 0),
            ],
        ),
    ],
)
def test_the_desired_state_is_always_written_or_checked(
    steps: list[Step], versions: Versions, expected: list[tuple[object, ...]]
) -> None:
    transaction = Recorded()
    for operation in operations("/r", versions, Decision(Outcome.ACT, "rule", "why", tuple(steps))):
        operation(transaction)
    assert transaction.operations == expected


def test_a_view_without_the_topologys_code_imports_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator, which has the rights of all topologies, makes it; what nobody has said counts as not deterministic."""
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    body = json.loads(load_topology("examples/minimal.yaml").document)

    def view(class_path: str, **more: Any) -> TopologyView:
        operator = {**body["spec"]["operators"][0], "class": class_path, **more}
        spec = {**body["spec"], "operators": [operator, *body["spec"]["operators"][1:]]}
        return view_of(from_json(json.dumps({**body, "spec": spec})), own_code=False)

    assert view("stranger:Mine").deterministic is False
    assert view("stranger:Mine", deterministic=True).deterministic is True
    mapped = view(
        "reprise.spark_jobs.operators:Map",
        **{"with": {"columns": {"x": "stranger:function"}, "function": "stranger:f"}},
    )
    assert mapped.deterministic is True, "of the library, whatever its parameters name"
    assert view("reprise.spark_jobs.operators:NoSuch").deterministic is False
    assert view_of(load_topology("examples/minimal.yaml"), own_code=False).deterministic is True
    assert "stranger" not in sys.modules


def test_the_words_of_a_topology_are_those_of_the_scheduler() -> None:
    """Neither may import the other."""
    assert [strategy.value for strategy in Strategy] == list(get_args(choices.Strategy))
    assert {scope.value for scope in Scope} == set(get_args(choices.Scope))
    assert {order.value for order in Order} == set(get_args(choices.QueryOrder))
