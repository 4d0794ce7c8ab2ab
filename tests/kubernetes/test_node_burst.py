"""A zone, which is half of the machines, loses power at once; two are frozen and come back; two are lost together with the
operator that is about to put that right.

One topology lives through all of it, in the order in which the tests are defined, as its start takes longer than each of
them.
Every test leaves it available on four machines, and the last one judges all that it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.scenario import until
from tests.kubernetes.streaming import BACK_S, PLAN_S, START_S, ZONE, Streaming
from tools.testbed.rest import MERGE

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/reprise-operator"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/reprise-operator"
FIRST, FED = "o0.0", "parser.0"
"""The output of the most valuable query, whose operator has a standby in another zone; and what it reads, with upstream
backup."""


def available_in_zones(body: dict[str, Any]) -> None:
    spec = body["spec"]
    spec["nodes"]["failureDomain"] = ZONE
    own = {"o0": {"availability": "active-standby", "standby": {"failureDomain": ZONE}},
           "parser": {"availability": "upstream-backup"}}  # fmt: skip
    spec["operators"] = [o | own.get(o["name"], {}) for o in spec["operators"]]


@pytest.fixture(scope="module")
def run(cluster: KubeCluster) -> Iterator[Streaming]:
    zones = ("east", "west")
    with Streaming.of_topology2(cluster, "burst", zones=zones, change=available_in_zones) as started:
        yield started


def test_a_zone_with_two_of_four_machines_loses_power(run: Streaming) -> None:
    """With their kubelets, agents, executors and partition hosts.  What has a standby in the other zone goes on there.
    While no machine comes, the most valuable queries that fit go on and the others wait and say why; then new ones come,
    one after the other."""
    cluster = run.cluster
    before = run.executors()
    assert len(set(before.values())) == 4, "one executor a machine"
    assert_guarded(run, before)
    zone = assert_in_zones(run, before)
    victims = [machine for machine in run.machines() if zone_of(cluster, machine) == zone]
    lost = {pod for pod, machine in before.items() if machine in victims}
    cluster.kill(victims)

    incident = run.await_incident()
    # Spark has let go of them: nobody else would remove the pods of a machine that never comes back
    run.until(lambda: lost.isdisjoint(run.executors()), "the lost pods are ended", PLAN_S)
    assert_shown(run, lost)
    assert_what_fits_goes_on_and_the_rest_says_why_it_waits(run)
    assert FIRST not in {entry["query"] for entry in run.status()["waiting"]}, "it needs no new machine"
    for plans in (2, 3):
        cluster.wait_ready([run.add_machine()])
        run.until(lambda plans=plans: len(run.plans()) >= plans, "a plan with the machine", BACK_S)
    run.await_recovery()
    available = f'reprise_availability_ratio{{topology="{NAMESPACE}/burst"}}'
    run.until(lambda: run.metrics("operator")[available] == 1.0, "Prometheus sees that all are back", PLAN_S)

    closed = run.incidents()[0]
    assert closed["metadata"]["name"] == incident["metadata"]["name"]
    assert closed["status"]["kind"] == "correlated"
    assert {entry["node"].partition("#")[0] for entry in closed["status"]["lost"]["latest"]} >= lost
    plans = run.plans()
    assert not any(plan["spec"]["rollback"] for plan in plans), "nobody who lives goes back"
    assert {plan["status"]["state"] for plan in plans} <= {"Done", "Superseded"}
    assert len(plans) == closed["status"]["plans"]["count"]
    assert_went_on_at_its_standby(run, closed, before.keys() - lost)
    assert "event=exchange " in run.driver_logs()[-1]


@pytest.mark.wide
def test_a_thawed_executor_ends_itself(run: Streaming) -> None:
    """Its frozen machine was given up, and it knows of nothing: it must never work again."""
    cluster, victims, plans = run.cluster, run.machines()[:2], len(run.plans())
    frozen = {pod for pod, machine in run.executors().items() if machine in victims}
    assert len(frozen) == 2
    cluster.freeze(victims)
    run.await_incident(plans + 1)
    run.until(lambda: frozen.isdisjoint(run.executors()), "they are given up", PLAN_S)
    cluster.thaw(victims)
    run.until(lambda: all(cluster.is_ready(name) for name in victims), "the machines are back", BACK_S)
    run.await_recovery()  # on the very machines that were frozen, by other pods
    assert frozen.isdisjoint(run.executors())


@pytest.fixture
def two_operators(cluster: KubeCluster) -> Iterator[None]:
    """For one test alone: others ask the only one for its page and its metrics."""
    scale(cluster, 2)
    yield
    scale(cluster, 1)


@pytest.mark.wide
@pytest.mark.usefixtures("two_operators")
def test_a_second_operator_takes_over_in_the_middle_of_a_recovery(run: Streaming) -> None:
    """It goes on where the first one was."""
    cluster, incidents, plans = run.cluster, len(run.incidents()), len(run.plans())
    cluster.kill(run.machines()[:2])
    opened = run.await_incident(plans + 1)
    first = holder(cluster)
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{first}", {"gracePeriodSeconds": 0})
    until(lambda: holder(cluster) not in ("", first), "another one leads", 180)
    for _ in range(2):
        run.add_machine()
    run.await_recovery()
    closed = run.incidents()[-1]
    assert closed["metadata"]["name"] == opened["metadata"]["name"]
    assert len(run.incidents()) == incidents + 1, "the same incident, and nothing was decided twice"
    assert len(run.plans()) == plans + closed["status"]["plans"]["count"]


def test_every_row_has_come_out_once(run: Streaming) -> None:
    run.finish()


def holder(cluster: KubeCluster) -> str:
    lease: dict[str, Any] | None = cluster.api.find(LEASE)
    return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")


def scale(cluster: KubeCluster, replicas: int) -> None:
    cluster.api.patch(DEPLOYMENT, {"spec": {"replicas": replicas}}, MERGE)
    until(lambda: ready(cluster) == replicas, f"{replicas} operators", 120)


def ready(cluster: KubeCluster) -> int | None:
    """Operators that are ready; None while others are on their way out."""
    count = int(cluster.api.get(DEPLOYMENT)["status"].get("readyReplicas") or 0)
    pods = cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector="app.kubernetes.io/component=operator"
    )["items"]
    return count if len(pods) == count else None


def assert_what_fits_goes_on_and_the_rest_says_why_it_waits(run: Streaming) -> None:
    run.until(lambda: run.status()["queries"]["available"] > 0, "the queries that fit are back", BACK_S)
    run.until(lambda: run.incidents()[-1]["status"]["phase"] == "waiting", "nothing more can be done", BACK_S)
    status = run.status()
    assert status["queries"]["available"] < status["queries"]["total"]
    assert all(entry["reason"] for entry in status["waiting"])
    assert run.condition("Degraded") == ("True", "QueriesDown")
    run.until(
        lambda: run.status()["nodes"]["pending"] == 2,
        "Spark has asked for as many as were lost, and nothing has room for them",
        BACK_S,
    )
    run.until(lambda: run.status()["nodes"].get("outlook"), "it says whether waiting helps", BACK_S)
    nodes = run.status()["nodes"]
    assert nodes["room"] == 0, "the two machines that are left are full"
    assert nodes["expected"] == 0
    assert "2 executors have no Kubernetes node" in nodes["outlook"]
    position = status["position"]
    run.until(lambda: run.status()["position"] > position + 10, "the available ones go on", BACK_S)


def assert_in_zones(run: Streaming, executors: dict[str, str]) -> str:
    """The standby is not in the zone of its partition, which has everything that its query needs; what would be lost with
    each zone is in the status of the resource, and which pods are in it on the page.  That zone."""
    node, standby = run.until(lambda: standing_by(run), "its standby is ready", START_S)
    zones = {pod: zone_of(run.cluster, machine) for pod, machine in executors.items()}
    assert zones[node] != zones[standby]
    assert zones[run.places(FED)[0]] == zones[node], "a query is in one zone where that has room"
    run.until(lambda: run.status().get("upstreamBackup") == {"ready": 1, "wanted": 1}, "it is backed", PLAN_S)

    items = run.document()["failure_domains"]["items"]
    seen = {item["value"]: {node.partition("#")[0] for node in item["nodes"]} for item in items}
    assert seen == {zone: {pod for pod in zones if zones[pod] == zone} for zone in ("east", "west")}
    found, most = run.status()["failureDomains"], max(item["lost"] for item in items)
    assert (found["count"], found["priority"], found["worst"]) == (2, 75, most)
    assert f"with one of 2 failure domains on average, and {most} with the worst" in found["summary"]
    return zones[node]


def standing_by(run: Streaming) -> tuple[str, str] | None:
    """Pods of the partition and of its standby, if that could go on now."""
    ready = run.status().get("standbys") == {"ready": 1, "wanted": 1}
    return run.places(FIRST) if ready else None


def zone_of(cluster: KubeCluster, machine: str) -> str:
    """What the label of the Node object says."""
    return str(cluster.api.get(f"/api/v1/nodes/{machine}")["metadata"]["labels"][ZONE])


def assert_went_on_at_its_standby(run: Streaming, incident: dict[str, Any], left: Set[str]) -> None:
    """Before any machine came, and by no plan; what it reads was fed again, without a stored state."""
    timeline = [(entry["name"], entry.get("detail", "")) for entry in incident["status"]["timeline"]]
    (promoted,) = (detail for name, detail in timeline if name == "promoted")
    assert any(promoted.startswith(f"{FIRST} to {pod}#") for pod in left)
    added = run.added()
    assert FED in added[0]
    assert not any(FIRST in plan for plan in added)
    assert f"event=upstream-backup partition={FED} " in run.driver_logs()[-1], "its state was read"


def assert_guarded(run: Streaming, executors: dict[str, str]) -> None:
    """Executors have the application's secret from Spark, and the API server has taken the topology's network policy."""
    for name in executors:
        pod = run.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        variables = {v["name"] for v in pod["spec"]["containers"][0]["env"]}
        assert "_SPARK_AUTH_SECRET" in variables
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert "ephemeral-storage" in limits
        assert all("sizeLimit" in v["emptyDir"] for v in pod["spec"]["volumes"] if "emptyDir" in v)
    policies = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
    assert run.cluster.api.get(f"{policies}/{run.name}-topology")["spec"]["egress"]


def assert_shown(run: Streaming, lost: set[str]) -> None:
    """The incident, by the metrics of operator and driver and by the page."""
    label = f'topology="{NAMESPACE}/{run.name}"'
    run.until(
        lambda: run.metrics("operator").get(f'reprise_incident_open{{kind="correlated",{label}}}') == 1.0,
        "Prometheus sees the incident",
        PLAN_S,
    )
    samples = run.metrics("operator")
    assert samples[f"reprise_availability_ratio{{{label}}}"] < 1.0
    assert any(name.startswith("reprise_superstep_seconds") for name in run.metrics("driver"))
    document = run.document()
    assert document["incident"]["closed_at"] is None
    assert {node["node"].partition("#")[0] for node in document["incident"]["lost"]} >= lost
