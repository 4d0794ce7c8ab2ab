"""A driver that is lost with its machine, one that hangs and comes back, one with other code, which comes from a ConfigMap:
every row comes out once.  And a query whose code raises, which a person lets do without what it has missed: what is not
marked comes out once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.agent import processes
from reprise.controller.cli import exits
from reprise.controller.crd.convert import SAVEPOINT, SKIP
from reprise.controller.operator.loop.topology import document_of
from reprise.spark_jobs.sinks.files import marked_by
from reprise.spark_jobs.state.revision import revision_of
from tests.kubernetes import numbers, own_code, scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.counted import LARGE, Counted
from tests.kubernetes.install import IMAGE, NAMESPACE, WEB_PORT
from tests.kubernetes.streaming import BACK_S, PLAN_S, START_S
from tests.kubernetes.test_command_line import kubectl

pytestmark = [pytest.mark.slow, pytest.mark.wide]


@pytest.fixture
def run(cluster: KubeCluster, request: pytest.FixtureRequest) -> Iterator[Counted]:
    yield from Counted.running(cluster, request.param)


@pytest.mark.parametrize("run", ["unplugged"], indirect=True)
def test_the_machine_of_the_driver_is_lost_with_all_that_runs_there(run: Counted) -> None:
    kept = take_savepoint(run, "kept").read_bytes()
    shutil.rmtree(take_savepoint(run, "deleted-by-hand").parent)
    machine = scenario.machine_of(run.driver_pod())
    beside = [pod for pod, where in run.executors().items() if where == machine]
    assert beside, "an executor is lost together with the driver"
    run.cluster.kill([machine])
    run.add_machine(LARGE)
    run.await_driver("2")
    assert any(machine in message for message in run.said("DriverLost"))
    (incident,) = (i["status"] for i in run.incidents() if "1 is replaced by 2" in told_of(i))
    assert {entry["node"].partition("#")[0] for entry in incident["lost"]["latest"]} >= set(beside)
    assert annotations(run)[SAVEPOINT].count("=") == 2
    run.finish()
    savepoints = run.folder / "checkpoints" / "savepoints"
    assert [path.name for path in savepoints.iterdir()] == ["kept"], "what is wished for still was taken once"
    assert (savepoints / "kept" / "SAVEPOINT.json").read_bytes() == kept


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


@pytest.fixture
def certain(cluster: KubeCluster) -> Iterator[Counted]:
    """Without what is tossed, as nothing is skipped where everything goes back at each failure."""

    def change(body: dict[str, Any]) -> None:
        operators = [o | {"deterministic": True} for o in body["spec"]["operators"]]
        body["spec"]["operators"] = [o for o in operators if o["name"] not in ("toss", "total")]

    yield from Counted.running(cluster, "skipped", change)


def test_a_query_whose_code_raised_goes_on_by_kubectl_reprise_skip(certain: Counted) -> None:
    run = certain
    page = f"http://{scenario.operator_address(run.cluster)}:{WEB_PORT}"
    command = ["reprise", "skip", run.name, "shaky.0", "-n", NAMESPACE, "--url", page]
    (run.folder / numbers.BROKEN).touch()
    run.until(lambda: "shaky.0" in run.progress()["failed"], "a partition is set aside", PLAN_S)
    (run.folder / numbers.BROKEN).unlink()  # what it raised at has gone, and nobody tries it again
    wrong = run.progress()["horizon"]
    run.until(lambda: run.progress()["horizon"] > wrong + 3, "the others go on", PLAN_S)
    assert "shaky.0" in run.progress()["failed"]
    asked = kubectl(run.cluster, *command)
    assert asked.returncode == exits.NO, "nobody can be asked, and --yes was not given"
    assert "begin anew, without what they knew: shaky.0" in asked.stdout
    assert SKIP not in annotations(run)
    said = kubectl(run.cluster, *command, "--yes")
    assert said.returncode == exits.DONE, said.stderr
    assert "shaky.0" in annotations(run)[SKIP]
    run.until(lambda: "shaky.0" in run.progress()["positions"], "it is at work", BACK_S)
    run.await_recovery()
    marked = [name for name in run.metrics("operator") if name.startswith("reprise_marked_batches{")]
    assert any(run.metrics("operator")[name] > 0 for name in marked if run.name in name), marked
    assert run.status()["skips"] == [], "it is carried out"
    (incident,) = (i["status"] for i in run.incidents() if i["status"]["gaps"])
    (gap,) = incident["gaps"]
    assert gap["query"] == "shaky.0" and gap["batches"] == incident["gapBatches"]
    again = kubectl(run.cluster, *command, "--yes")
    assert again.returncode == exits.NO, "an annotation that stays is no wish for ever"
    assert "all of its operators are at work" in again.stderr

    shown, shaky = run.rows(run.end()), run.column("shaky", "n")
    marks = {marked_by(file.name) for file in (run.folder / "sink" / "shaky" / "0").iterdir()} - {None}
    assert marks == {batch for span in gap["spans"] for batch in range(span["first"], span["last"] + 1)}
    assert marks, "nothing was skipped"
    assert shaky.keys() == shown.keys()
    assert {batch for batch in shown if shaky[batch] != shown[batch]} <= marks
    assert all(shaky[batch] in ([], shown[batch]) for batch in shown)
    others = [path for path in (run.folder / "sink").glob("*/0/*.gap.mark") if "shaky" not in path.parts]
    assert others == []


def annotations(run: Counted) -> dict[str, str]:
    """Of the topology."""
    found: dict[str, str] = scenario.topology(run.cluster, run.name)["metadata"].get("annotations") or {}
    return found


def take_savepoint(run: Counted, name: str) -> Path:
    """By the command line: its annotation, the operator, the driver and back over the page; the record of the savepoint."""
    page = f"http://{scenario.operator_address(run.cluster)}:{WEB_PORT}"
    done = kubectl(run.cluster, "reprise", "savepoint", run.name, name, "-n", NAMESPACE, "--url", page)
    assert done.returncode == exits.DONE, done.stderr
    path = run.folder / "checkpoints" / "savepoints" / name / "SAVEPOINT.json"
    assert path.is_file(), done.stdout
    return path


def told_of(incident: dict[str, Any]) -> list[str]:
    """What its timeline says of drivers."""
    timeline = incident["status"]["timeline"]
    return [entry["detail"] for entry in timeline if entry["name"] == "driver-started"]


def assert_revision(run: Counted, epoch: int) -> None:
    """The only one on record is that of the newest driver, of what is wanted now, and not drained."""
    document = document_of(scenario.topology(run.cluster, run.name))
    wanted = revision_of(scenario.resource_of(document), IMAGE)
    assert run.records("revisions") == {f"{epoch:08d}.json": {"revision": wanted, "drained": None}}
