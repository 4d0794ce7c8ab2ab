"""A topology that streams on a test cluster: started until it has a checkpoint, judged when it has ended.

Budgets, on an idle machine: a start needs three JVMs a machine and a first job (a minute); a first plan is there when
heartbeats have expired (6 s, the session of test clusters), the burst has settled (1 s), the planner has answered (1 s
at most) and the coordinator has looked twice (0.6 s): 9 s; a new machine is Ready in 2 s, its executor registers within
12 s, the next plan and the restoring take 3 s.  Tests wait many times as long: they judge that it happens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes import scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import METRICS_PORT, NAMESPACE, WEB_PORT
from tests.kubernetes.scenario import until

START_S, PLAN_S, BACK_S, END_S = 400.0, 90.0, 300.0, 500.0
CPU = "600m"
"""Of a worker: room for one executor of 500m."""


@dataclass
class Streaming:
    """One topology on one cluster."""

    cluster: KubeCluster
    name: str
    body: dict[str, Any]
    wanted: Path

    @classmethod
    def start(
        cls, cluster: KubeCluster, name: str, folder: Path, *, nodes: int = 4, batches: int = 160, **spec: Any
    ) -> Streaming:
        """Applied, every query available, one global checkpoint complete, and far from its end."""
        body = scenario.manifest("topology2.yaml", name, nodes=nodes, cpu="500m", batches=batches, **spec)
        run = cls(cluster, name, body, scenario.expected(body, folder / "expected"))
        scenario.apply(cluster, body)
        run.until(run.available, "every query is available", START_S)
        run.until(lambda: run.status()["checkpoint"]["position"] > 0, "a global checkpoint", START_S)
        assert not run.progress().get("ended"), "the stream must outlast what is done to it"
        return run

    def until(self, condition: Callable[[], Any], what: str, seconds: float) -> Any:
        return until(condition, what, seconds, scenario.report(self.cluster, self.name))

    # -- what is seen ------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return scenario.status(self.cluster, self.name)

    def condition(self, kind: str) -> tuple[str, str]:
        return scenario.condition(self.cluster, self.name, kind)

    def available(self) -> bool:
        return self.condition("Ready")[0] == "True"

    def progress(self) -> dict[str, Any]:
        return scenario.progress(self.cluster, self.name)

    def incidents(self) -> list[dict[str, Any]]:
        return scenario.objects(self.cluster, "incidents", self.name)

    def plans(self) -> list[dict[str, Any]]:
        return scenario.objects(self.cluster, "recoveryplans", self.name)

    def executors(self) -> dict[str, str]:
        """Machine by pod, of the pods that run."""
        return {
            p["metadata"]["name"]: scenario.machine_of(p)
            for p in scenario.pods(self.cluster, self.name, "executor")
            if p["status"].get("phase") == "Running"
        }

    def machines(self) -> list[str]:
        """Of the executors, in order of name."""
        return sorted(set(self.executors().values()))

    def metrics(self, role: str) -> dict[str, float]:
        """What the operator or the driver of this topology serves to Prometheus, by name with labels."""
        if role == "operator":
            host = scenario.operator_address(self.cluster)
        else:
            (driver,) = scenario.pods(self.cluster, self.name, role)
            host = driver["status"]["podIP"]
        lines = scenario.fetch(f"http://{host}:{METRICS_PORT}/metrics").decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def document(self) -> dict[str, Any]:
        """What the operator's page shows."""
        host = scenario.operator_address(self.cluster)
        path = f"/api/v1/topologies/{NAMESPACE}/{self.name}"
        found: dict[str, Any] = json.loads(scenario.fetch(f"http://{host}:{WEB_PORT}{path}"))
        return found

    # -- what is done ------------------------------------------------------------------------------------------------

    def add_machines(self, *names: str) -> None:
        for name in names:
            self.cluster.add_node(name, cpu=CPU, memory="4Gi", labels={"role": "worker"})

    def await_incident(self, plans: int = 1) -> dict[str, Any]:
        """An open incident with so many plans; the object."""
        self.until(lambda: self.condition("Recovering")[0] == "True", "Recovering", PLAN_S)
        self.until(lambda: len(self.plans()) >= plans, f"{plans} RecoveryPlans", PLAN_S)
        return self.incidents()[-1]

    def await_recovery(self) -> None:
        """Every query is back and the incident closed."""
        self.until(self.available, "every query is back", BACK_S)
        self.until(lambda: self.condition("Recovering")[0] == "False", "the incident is closed", BACK_S)

    def finish(self) -> None:
        """To the last batch, and the verdict on the output."""
        self.until(lambda: self.progress().get("done"), "the end of the stream", END_S)
        self.until(lambda: self.condition("Recovering")[0] == "False", "nothing is open", END_S)
        scenario.assert_exactly_once(self.cluster, self.name, self.wanted)
