"""Queries come and go by `kubectl apply`: the stream drains, and a driver of another graph goes on behind that checkpoint,
though the driver dies while it drains, and the operator when the other graph is on record.  Every row comes out once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.kubernetes import scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.counted import Counted
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.streaming import PLAN_S, START_S

pytestmark = [pytest.mark.slow, pytest.mark.wide]
THIRD = {"name": "third", "class": "reprise.spark_jobs.operators:Filter", "with": {"where": "n % 3 = 0"},
         "inputs": [{"from": "in"}], "output": {}}  # fmt: skip


@pytest.fixture
def run(cluster: KubeCluster) -> Iterator[Counted]:
    yield from Counted.running(cluster, "comes-and-goes")


def message(run: Counted, kind: str) -> str:
    found = run.status().get("conditions") or []
    return next((str(entry["message"]) for entry in found if entry["type"] == kind), "")


def kill_driver(run: Counted) -> None:
    pod = run.driver_pod()
    for process in run.cluster.processes_of(scenario.machine_of(pod), pod["metadata"]["name"]):
        os.kill(process.pid, signal.SIGKILL)


def kill_operator(run: Counted) -> None:
    """Its Deployment makes another one, which goes on when the Lease is over."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    (pod,) = run.cluster.api.get(path, labelSelector="app.kubernetes.io/component=operator")["items"]
    run.cluster.api.delete(f"{path}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def numbers_of_drivers(run: Counted) -> list[int]:
    """Those that drivers have claimed, in order."""
    return sorted(int(name.removesuffix(".json")) for name in run.records("epochs") if name.count(".") == 1)


def begins(run: Counted) -> dict[str, int]:
    """Behind which batch each operator begins that came later, by the newest driver's record."""
    newest = max(run.records("graphs").items())[1]
    return dict(newest["begins"])


def test_queries_come_and_go_though_driver_and_operator_die_on_the_way(run: Counted) -> None:
    former = run.body["spec"]["operators"]
    run.change(operators=[*former, THIRD], batch={"interval": "500ms", "order": "arrival"})
    run.until(lambda: run.condition("Stalled") == ("True", "SpecRefused"), "it is refused", PLAN_S)
    assert "spec.batch.order: is 'arrival'" in message(run, "Stalled")
    assert run.epoch() == "1"
    assert run.available(), "what was there goes on"

    run.change(
        operators=[*(o for o in former if o["name"] != "pick"), THIRD],
        batch={"interval": "500ms", "order": "aligned"},
    )
    run.until(lambda: run.said("DrainAsked"), "the driver is asked to drain", PLAN_S)
    if run.progress().get("drained") is None:
        kill_driver(run)
    run.until(lambda: run.condition("Stalled")[0] == "False", "it is taken", PLAN_S)
    run.until(lambda: run.condition("Reconciling")[0] == "True", "it says that it is on its way", PLAN_S)
    run.until(lambda: run.said("QueriesChanged"), "the stream has drained", START_S)
    kill_operator(run)
    assert "third begins, pick ends" in run.said("QueriesChanged")[0]
    run.until(lambda: "third" in begins(run), "a driver of the other graph", START_S)
    boundary = begins(run)["third"]
    before, after = numbers_of_drivers(run)[-2:]
    assert after == before + 2, (
        "the step has taken a number, so that no driver of the former graph is the newest"
    )
    run.until(run.available, "every query is available", START_S)
    run.until(lambda: run.condition("Reconciling")[0] == "False", "nothing is waited for", PLAN_S)
    run.until(lambda: run.newest() > boundary, "a checkpoint behind the change", START_S)
    run.finish()

    shown, pick, third = run.column("all", "n"), run.column("pick", "n"), run.column("third", "n")
    assert min(shown) < boundary < max(shown)
    for batch, found in shown.items():
        assert pick.get(batch, []) == [n for n in found if n % 2 == 0 and batch <= boundary], batch
        assert third.get(batch, []) == [n for n in found if n % 3 == 0 and batch > boundary], batch
