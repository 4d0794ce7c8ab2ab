"""A topology that streams on machines of its own: started until it has a checkpoint, ended when the test has seen what it
wanted, judged, and removed with its machines.

Budgets, on an idle machine: a start needs three JVMs a machine and a first job (a minute); a first plan is there when
the burst has settled (1 s), the planner has answered (1 s at most) and the coordinator has looked twice (0.6 s), and 20 s
later where sessions expire, as those of frozen machines do; a new machine is Ready in 2 s, its executor registers within
12 s, the next plan and the restoring take 3 s.  Tests wait many times as long: they judge that it happens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.kubernetes import numbers, scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import METRICS_PORT, NAMESPACE, WEB_PORT, data_folder
from tests.kubernetes.scenario import until

START_S, PLAN_S, BACK_S, END_S = 400.0, 90.0, 300.0, 500.0
CPU = "600m"
"""Of a machine: room for one executor of 500m."""
ZONE = "topology.kubernetes.io/zone"


@dataclass
class Streaming:
    """One topology on one cluster."""

    cluster: KubeCluster
    name: str
    body: dict[str, Any]
    zones: tuple[str, ...] = ()
    """Of the machines, in turn; none: they have no such label."""
    _machines: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of_topology2(
        cls,
        cluster: KubeCluster,
        name: str,
        *,
        nodes: int = 4,
        zones: tuple[str, ...] = (),
        change: Callable[[dict[str, Any]], None] = lambda body: None,
    ) -> Iterator[Self]:
        """Topology 2 on so many machines, with every query available and one global checkpoint.  `change`: of its resource,
        before it is made."""
        body = scenario.manifest("topology2.yaml", name, nodes=nodes, cpu="500m")
        change(body)
        run = cls(cluster, name, body, zones)
        with run.at_work([CPU] * nodes):
            yield run

    @contextmanager
    def at_work(self, cpus: list[str]) -> Iterator[None]:
        """On machines of these sizes: every query is available and a global checkpoint complete.  Afterwards nothing is
        left, so that the next topology has the operator and the processors to itself."""
        self.folder.mkdir(parents=True)
        try:
            self.cluster.wait_ready([self.add_machine(cpu) for cpu in cpus])
            scenario.apply(self.cluster, self.body)
            self.until(self.available, "every query is available", START_S)
            self.until(lambda: self.newest() > 0, "a global checkpoint", START_S)
            yield
        finally:
            self._remove()

    def _remove(self) -> None:
        api = self.cluster.api
        if api.find(self.path) is not None:
            api.delete(self.path)
            self.until(lambda: api.find(self.path) is None, "the topology is removed", BACK_S)
        self.cluster.kill(name for name in self._machines if name in self.cluster.nodes)
        for name in self._machines:
            if api.find(f"/api/v1/nodes/{name}") is not None:
                api.delete(f"/api/v1/nodes/{name}")

    def until(self, condition: Callable[[], Any], what: str, seconds: float) -> Any:
        return until(condition, what, seconds, scenario.report(self.cluster, self.name))

    # -- what is seen ------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Of its checkpoints, its sink, and the files that tell its code what to do."""
        return data_folder(self.cluster) / self.name

    @property
    def path(self) -> str:
        return f"{scenario.FOLDER}/streamtopologies/{self.name}"

    def newest(self) -> int:
        """The position of the newest global checkpoint."""
        return int(self.progress().get("checkpoint", 0))

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

    def added(self) -> list[dict[str, str]]:
        """What each plan has placed, and where; oldest first."""
        records = (scenario.record(self.cluster, self.name, f"plans/{p['spec']['id']}") for p in self.plans())
        return [record["added"] for record in records]

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

    def driver_logs(self) -> list[str]:
        """Of all drivers, oldest first."""
        found = (self.cluster.work_dir / "pods").glob(f"*/{self.name}-driver/*/driver.log")
        texts = [log.read_text(encoding="utf-8", errors="replace") for log in found]
        return sorted(texts, key=lambda text: text.partition("event=driver-started epoch=")[2])

    def decided(self) -> list[str]:
        """What operators have logged of their decisions for it."""
        logs = (self.cluster.work_dir / "pods").glob("*/reprise-operator-*/*/operator.log")
        lines = [
            line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        ]
        return [x for x in lines if "event=decided " in x and f"topology={NAMESPACE}/{self.name}" in x]

    def places(self, partition: str) -> tuple[str, str]:
        """Pods with a partition and with its standby, as the operator's page has it; empty where there is none."""
        (found,) = (p for p in self.document()["partitions"] if p["id"] == partition)
        node, standby = ((found[key] or "").partition("#")[0] for key in ("node", "standby"))
        return node, standby

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

    def add_machine(self, cpu: str = CPU) -> str:
        """Another one, that no other topology may use; its name."""
        turn, name = len(self._machines), f"{self.name}-m{len(self._machines) + 1}"
        self._machines.append(name)
        labels = {"pool": self.name}
        if self.zones:
            labels[ZONE] = self.zones[turn % len(self.zones)]
        self.cluster.add_node(name, cpu=cpu, memory="4Gi", labels=labels)
        return name

    def await_incident(self, plans: int = 1) -> dict[str, Any]:
        """An open incident with so many plans; the object."""
        self.until(lambda: self.condition("Recovering")[0] == "True", "Recovering", PLAN_S)
        self.until(lambda: len(self.plans()) >= plans, f"{plans} RecoveryPlans", PLAN_S)
        return self.incidents()[-1]

    def await_recovery(self) -> None:
        """Every query is back and the incident closed."""
        self.until(self.available, "every query is back", BACK_S)
        self.until(lambda: self.condition("Recovering")[0] == "False", "the incident is closed", BACK_S)

    def end_after(self, number: int) -> None:
        """The stream ends with this batch, or with the last that there is already."""
        part = self.folder / "part"
        part.write_text(str(number))
        part.rename(self.folder / numbers.END)
        self.until(lambda: self.progress().get("done"), "the end of the stream", END_S)
        self.until(lambda: self.condition("Recovering")[0] == "False", "nothing is open", END_S)

    def finish(self) -> None:
        """The stream ends with the batches that there are now, and the verdict on the output of all of them."""
        self.end_after(0)
        last = int(self.progress()["horizon"])
        wanted = self.folder / "wanted"
        wanted.mkdir()
        (wanted / numbers.END).write_text(
            str(last - 1)
        )  # the last one follows the rows, and closes all windows
        source = self.body["spec"]["sources"][0]
        body = {**self.body, "spec": {**self.body["spec"], "sources": [
            {**source, "with": {**source["with"], "folder": str(wanted)}}
        ]}}  # fmt: skip
        scenario.assert_exactly_once(self.cluster, self.name, scenario.expected(body, wanted))
