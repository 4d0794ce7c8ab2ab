"""A topology from `kubectl apply` to its last batch, with half of its machines gone in between.

Budgets, on an idle machine.  First plan: heartbeats expire 3 s after the kill (the session), the burst settles for 1 s, the
planner may take 1 s, two looks of the coordinator: 6 s.  Back: a new machine is Ready in 2 s, Spark has asked for a
replacement by then, its executor registers within 12 s, then one plan and the restoring.  Tests wait ten times as
long: they judge that it happens, `make bench-operator` how fast.
"""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes import scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.conftest import CPU
from tests.kubernetes.scenario import until

START_S, PLAN_S, BACK_S, END_S = 300.0, 60.0, 200.0, 400.0


def test_half_of_the_machines_die_and_every_query_comes_back(cluster: KubeCluster, tmp_path: Path) -> None:
    name = "burst"
    body = scenario.manifest("topology2.yaml", name, nodes=4, cpu="500m", batches=120)
    wanted = scenario.expected(body, tmp_path / "expected")
    report = scenario.report(cluster, name)
    scenario.apply(cluster, body)
    until(lambda: scenario.all_available(cluster, name), "every query available", START_S, report)
    until(
        lambda: scenario.status(cluster, name)["checkpoint"]["position"] > 0, "a checkpoint", START_S, report
    )

    before = scenario.pods(cluster, name, "executor")
    assert len({scenario.machine_of(pod) for pod in before}) == 4, "one executor a machine"
    victims = sorted(scenario.machine_of(pod) for pod in before)[:2]
    lost = {pod["metadata"]["name"] for pod in before if scenario.machine_of(pod) in victims}
    assert not scenario.progress(cluster, name).get("ended"), "the stream must outlast the test's steps"
    cluster.kill(victims)

    incident = until(lambda: scenario.objects(cluster, "incidents", name), "an Incident", PLAN_S, report)[-1]
    until(lambda: scenario.objects(cluster, "recoveryplans", name), "a RecoveryPlan", PLAN_S, report)
    assert scenario.condition(cluster, name, "Recovering")[0] == "True"
    until(lambda: _phases(cluster, name, lost) <= {"gone"}, "the lost pods are ended", PLAN_S, report)

    for number in (5, 6):
        cluster.add_node(f"w{number}", cpu=CPU, memory="4Gi", labels={"role": "worker"})
    until(lambda: scenario.all_available(cluster, name), "every query is back", BACK_S, report)
    until(lambda: scenario.progress(cluster, name).get("done"), "the end of the stream", END_S, report)
    until(lambda: scenario.condition(cluster, name, "Recovering")[0] == "False", "closed", END_S, report)
    scenario.assert_exactly_once(cluster, name, wanted)

    closed = scenario.objects(cluster, "incidents", name)[0]
    assert closed["metadata"]["name"] == incident["metadata"]["name"]
    assert closed["status"]["kind"] == "correlated"
    assert {entry["node"].partition("#")[0] for entry in closed["status"]["lost"]["latest"]} >= lost
    plans = scenario.objects(cluster, "recoveryplans", name)
    assert plans[0]["spec"]["rollback"] is True
    assert len(plans) == closed["status"]["plans"]["count"]


def _phases(cluster: KubeCluster, name: str, lost: set[str]) -> set[str]:
    there = {p["metadata"]["name"] for p in scenario.pods(cluster, name, "executor")}
    return {"there" if pod in there else "gone" for pod in lost}
