"""What else happens to a topology: ZooKeeper or the API server is away, pods are evicted, machines are drained, or lost in
the middle of a recovery.

One topology lives through all of it, in the order in which the tests are defined, as its start takes longer than each of
them.  Every test leaves it available on four machines, and the last one judges all that it has written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import scenario
from tests.kubernetes.cluster import SESSION_S, KubeCluster
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.streaming import BACK_S, PLAN_S, Streaming
from tools.testbed.rest import MERGE

pytestmark = [pytest.mark.slow, pytest.mark.wide]
MACHINES = 4
"""That the topology wants."""


@pytest.fixture(scope="module")
def run(cluster: KubeCluster) -> Iterator[Streaming]:
    with Streaming.of_topology2(cluster, "disturbed") as started:
        yield started


def evict(run: Streaming, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    run.cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", eviction)


def test_loss_of_zookeeper_is_not_loss_of_nodes(run: Streaming) -> None:
    """ZooKeeper is away for longer than any session."""
    before, incidents = run.executors(), run.incidents()
    run.cluster.zookeeper.kill()
    over = time.monotonic() + 1.5 * SESSION_S
    run.until(lambda: run.condition("Observed")[0] == "False", "the outage is reported", PLAN_S)
    assert run.condition("Ready")[0] == "Unknown"
    run.until(lambda: time.monotonic() > over, "sessions would have expired", PLAN_S)
    run.cluster.zookeeper.start()
    run.until(lambda: run.condition("Observed")[0] == "True", "it is seen again", BACK_S)
    assert run.executors() == before
    assert run.incidents() == incidents


def test_evicted_executors_are_one_incident_and_are_replaced_where_they_were(run: Streaming) -> None:
    before, plans = len(run.incidents()), len(run.plans())
    for pod in sorted(run.executors())[:2]:
        evict(run, pod)
    run.await_incident(plans + 1)
    run.await_recovery()  # no machine was lost, so none has to come
    (incident,) = run.incidents()[before:]
    assert incident["status"]["kind"] == "correlated"


def test_a_loss_during_a_recovery_belongs_to_the_same_incident(run: Streaming) -> None:
    before, plans, machines = len(run.incidents()), len(run.plans()), run.machines()
    run.cluster.kill(machines[:2])
    run.await_incident(plans + 1)
    run.cluster.kill([machines[2]])
    lost = lambda: run.incidents()[-1]["status"]["lost"]["count"]  # noqa: E731
    run.until(lambda: lost() >= 3, "the third loss is counted", PLAN_S)
    for _ in range(3):
        run.add_machine()
    run.await_recovery()
    assert len(run.incidents()) == before + 1


def test_plans_are_made_without_the_api_server_and_shown_when_it_is_back(run: Streaming) -> None:
    victims, seq, plans = run.machines()[:2], int(run.progress()["seq"]), len(run.plans())
    run.cluster.control_plane.kill("kube-apiserver")
    run.cluster.kill(victims)
    run.until(lambda: int(run.progress().get("seq", 0)) > seq, "a plan is being carried out", PLAN_S)
    run.cluster.control_plane.start_part("kube-apiserver")
    run.cluster.control_plane.wait_ready()
    run.await_incident(plans + 1)
    for _ in range(2):
        run.add_machine()
    run.await_recovery()


def test_an_executor_that_is_gone_before_spark_has_seen_it_is_replaced(run: Streaming) -> None:
    """Where Spark's watch has ended with the API server, only a poll shows that a pod is gone."""

    def pods() -> set[str]:
        return {pod["metadata"]["name"] for pod in scenario.pods(run.cluster, run.name, "executor")}

    before, known = len(run.incidents()), pods()
    evict(run, min(run.executors()))
    (new,) = run.until(lambda: pods() - known, "another executor is created", BACK_S)
    run.cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{new}", {"gracePeriodSeconds": 0})
    run.until(lambda: len(run.incidents()) > before, "its incident", PLAN_S)
    run.until(lambda: len(run.executors()) == MACHINES, "its replacement runs", BACK_S)
    run.await_recovery()


def test_each_drained_machine_is_a_small_incident(run: Streaming) -> None:
    """Machines are drained one after the other, each after the one before has been made good."""
    before = len(run.incidents())
    for number, machine in enumerate(run.machines()[:2], start=1):
        run.cluster.api.patch(f"/api/v1/nodes/{machine}", {"spec": {"unschedulable": True}}, MERGE)
        run.add_machine()
        evict(run, next(pod for pod, where in run.executors().items() if where == machine))
        run.until(lambda number=number: len(run.incidents()) == before + number, "its own incident", BACK_S)
        run.await_recovery()
    assert [i["status"]["kind"] for i in run.incidents()[before:]] == ["blocking", "blocking"]


def test_every_row_has_come_out_once(run: Streaming) -> None:
    run.finish()
