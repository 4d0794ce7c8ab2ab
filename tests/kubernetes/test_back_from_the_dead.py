"""A frozen machine is given up and comes back: its executor, which knows of nothing, must never work again."""

from __future__ import annotations

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import BACK_S, PLAN_S, Streaming


def test_a_thawed_executor_ends_itself(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "zombie") as run:
        victims = run.machines()[:2]
        frozen = {pod for pod, machine in run.executors().items() if machine in victims}
        cluster.freeze(victims)
        run.await_incident()
        run.until(lambda: frozen.isdisjoint(run.executors()), "they are given up", PLAN_S)
        cluster.thaw(victims)
        run.until(lambda: all(cluster.is_ready(name) for name in victims), "the machines are back", BACK_S)
        run.await_recovery()  # on the very machines that were frozen, by other pods
        assert frozen.isdisjoint(run.executors())
        run.finish()
