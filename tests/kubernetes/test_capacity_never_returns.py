"""Machines die and none comes: the most valuable queries that fit go on, the others wait and say why."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import BACK_S, Streaming


def test_what_fits_goes_on_and_the_rest_says_why_it_waits(cluster: KubeCluster, tmp_path: Path) -> None:
    run = Streaming.start(cluster, "shrunk", tmp_path, batches=400)
    cluster.kill(run.machines()[:2])
    run.await_incident()
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
