"""Half of the machines lose power at once: with their kubelets, agents, executors and partition hosts.  While none comes,
the most valuable queries that fit go on and the others wait and say why; then new ones come, one after the other."""

from __future__ import annotations

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.streaming import BACK_S, PLAN_S, Streaming


def test_two_of_four_machines(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "burst") as run:
        two_are_lost(run)


def two_are_lost(run: Streaming) -> None:
    cluster = run.cluster
    before = run.executors()
    assert len(set(before.values())) == 4, "one executor a machine"
    assert_guarded(run, before)
    victims = run.machines()[:2]
    lost = {pod for pod, machine in before.items() if machine in victims}
    cluster.kill(victims)

    incident = run.await_incident()
    # Spark has let go of them: nobody else would remove the pods of a machine that never comes back
    run.until(lambda: lost.isdisjoint(run.executors()), "the lost pods are ended", PLAN_S)
    assert_shown(run, lost)
    assert_what_fits_goes_on_and_the_rest_says_why_it_waits(run)
    for plans in (2, 3):
        cluster.wait_ready([run.add_machine()])
        run.until(lambda plans=plans: len(run.plans()) >= plans, "a plan with the machine", BACK_S)
    run.await_recovery()
    run.finish()
    assert run.metrics("operator")[f'reprise_availability_ratio{{topology="{NAMESPACE}/burst"}}'] == 1.0

    closed = run.incidents()[0]
    assert closed["metadata"]["name"] == incident["metadata"]["name"]
    assert closed["status"]["kind"] == "correlated"
    assert {entry["node"].partition("#")[0] for entry in closed["status"]["lost"]["latest"]} >= lost
    plans = run.plans()
    assert plans[0]["spec"]["rollback"] is True
    assert {plan["status"]["state"] for plan in plans} <= {"Done", "Superseded"}
    assert len(plans) == closed["status"]["plans"]["count"]


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
    assert "2 executors have no machine" in nodes["outlook"]
    position = status["position"]
    run.until(lambda: run.status()["position"] > position + 10, "the available ones go on", BACK_S)


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
