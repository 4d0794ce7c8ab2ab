"""A driver that is lost with its machine, one that hangs and comes back, one with other code, which comes from a ConfigMap:
every row comes out once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reprise.controller.agent import processes
from reprise.controller.operator.loop.topology import document_of
from reprise.spark_jobs.state.revision import revision_of
from tests.kubernetes import numbers, own_code, scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.counted import LARGE, Counted
from tests.kubernetes.install import IMAGE
from tests.kubernetes.streaming import PLAN_S, START_S


@pytest.fixture
def run(cluster: KubeCluster, request: pytest.FixtureRequest) -> Iterator[Counted]:
    yield from Counted.running(cluster, request.param)


@pytest.mark.parametrize("run", ["unplugged"], indirect=True)
def test_the_machine_of_the_driver_is_lost_with_all_that_runs_there(run: Counted) -> None:
    machine = scenario.machine_of(run.driver_pod())
    beside = [pod for pod, where in run.executors().items() if where == machine]
    assert beside, "an executor is lost together with the driver"
    run.cluster.kill([machine])
    run.add_machine(LARGE)
    run.await_driver("2")
    assert any(machine in message for message in run.said("DriverLost"))
    (incident,) = (i["status"] for i in run.incidents() if "1 is replaced by 2" in told_of(i))
    assert {entry["node"].partition("#")[0] for entry in incident["lost"]["latest"]} >= set(beside)
    run.finish()


@pytest.mark.parametrize("run", ["frozen"], indirect=True)
def test_a_driver_that_was_frozen_in_a_turn_finds_its_successor_and_ends(run: Counted) -> None:
    pod = run.driver_pod()
    machine = scenario.machine_of(pod)

    def old() -> list[processes.Process]:
        return run.cluster.processes_of(machine, pod["metadata"]["name"])

    (run.folder / numbers.STOP).touch()
    run.until(lambda: any(p.state == "T" for p in old()), "it has stopped itself", PLAN_S)
    run.cluster.freeze([machine])  # nobody there can end it
    run.add_machine(LARGE)
    run.await_driver("2")
    assert old(), "it was given up, and lives"
    run.cluster.thaw_pods(machine)
    run.until(lambda: not old(), "it ends by itself", START_S)
    first, second = run.driver_logs()
    assert "event=superseded epoch=1 reason='a driver of epoch 2 has begun in " in first
    assert "event=superseded" not in second
    run.cluster.thaw([machine])
    for folder in ("clock", "revisions"):
        assert list(run.records(folder)) == ["00000002.json"], "only what the newest has begun with"
    run.finish()
    assert run.epoch() == "2"


@pytest.fixture
def own(cluster: KubeCluster) -> Iterator[Counted]:
    """Its source and one query are of a module that is in a ConfigMap alone."""
    yield from Counted.running(cluster, "upgraded", lambda body: own_code.give(cluster, body))


def test_changed_code_goes_on_after_a_drain_and_by_a_replay_where_none_can_end(own: Counted) -> None:
    run = own
    kubernetes = run.body["spec"]["kubernetes"] | {"code": own_code.publish(run.cluster, "two")}
    run.change(operators=run.operators("pick", where="n % 3 = 0"), kubernetes=kubernetes)
    run.await_driver("2")
    assert run.driver_pod()["metadata"]["labels"]["team"] == "own"
    assert_revision(run, 2)
    assert run.said("DrainAsked")
    boundary = int(run.driver_logs()[0].partition("event=drained position=")[2].split()[0])

    (run.folder / numbers.BROKEN).touch()
    run.until(lambda: "shaky.0" in run.progress()["failed"], "a partition is set aside", PLAN_S)
    covered = run.newest()
    run.until(lambda: min(run.progress()["positions"].values()) > covered + 2, "the others go on", PLAN_S)
    run.change(operators=run.operators("shaky", breaks="nothing"))
    waits = "no checkpoint can be complete while shaky.0 is set aside; `upgrade: replay` lets the new code"
    run.until(lambda: waits in json.dumps(run.status()), "the status names the way out", PLAN_S)
    assert run.epoch() == "2", "no new code without a drain"
    run.change(upgrade="replay")
    run.await_driver("3")
    assert_revision(run, 3)
    made_again = f"batches after checkpoint {covered}, up to "
    assert made_again in run.driver_logs()[2]

    run.finish()
    run.picked(boundary, before=2, after=3)
    rows, shown = run.column("all", "n"), run.column(own_code.QUERY, "told")
    assert run.column(own_code.QUERY, "n") == rows
    for batch, told in shown.items():
        version = "one" if batch <= boundary else "two"
        assert told == [own_code.told(version)] * len(rows[batch]), batch


def told_of(incident: dict[str, Any]) -> list[str]:
    """What its timeline says of drivers."""
    timeline = incident["status"]["timeline"]
    return [entry["detail"] for entry in timeline if entry["name"] == "driver-started"]


def assert_revision(run: Counted, epoch: int) -> None:
    """The only one on record is that of the newest driver, of what is wanted now, and not drained."""
    document = document_of(scenario.topology(run.cluster, run.name))
    wanted = revision_of(scenario.resource_of(document), IMAGE)
    assert run.records("revisions") == {f"{epoch:08d}.json": {"revision": wanted, "drained": None}}
