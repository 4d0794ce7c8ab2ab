"""A topology of numbers, judged by its rows alone.

Its driver fits on a large machine only, and an executor beside it; so who loses that machine loses both.  The verdict needs
no second run: `all` shows which rows each batch has, and everything else follows from that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.kubernetes import numbers, scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import DATA, NAMESPACE
from tests.kubernetes.streaming import BACK_S, CPU, START_S, Streaming
from tools.testbed.rest import MERGE

ROWS = 20
"""Of a batch, about."""
EVEN = "n % 2 = 0"
LARGE = "2600m"
"""Of a machine: room for a driver of 2 cores and an executor of 500m."""


def body(name: str) -> dict[str, Any]:
    """Five queries; `total` adds up what is tossed, so its output must never come of two histories."""
    folder = f"{DATA}/{name}"
    origin = {"rows": ROWS, "folder": folder}
    rows = {"inputs": [{"from": "in"}], "output": {}}
    user = "tests.kubernetes.numbers:"
    operators = [
        {"name": "all", "class": "reprise.spark_jobs.operators:Filter", "with": {"where": "n >= 0"}, **rows},
        {"name": "pick", "class": "reprise.spark_jobs.operators:Filter", "with": {"where": EVEN}, **rows},
        {"name": "seen", "class": f"{user}Seen", **rows},
        {"name": "shaky", "class": f"{user}Shaky", "with": {"breaks": f"{folder}/{numbers.BROKEN}"}, **rows},
        {"name": "toss", "class": "tests.support.coin:Toss", "deterministic": False, "inputs": [{"from": "in"}]},
        {"name": "total", "class": "tests.support.coin:Total", "inputs": [{"from": "toss"}], "output": {}},
    ]  # fmt: skip
    spec = {
        "batch": {"interval": "500ms"},
        "sources": [{"name": "in", "class": f"{user}Numbers", "with": origin}],
        "operators": operators,
        "nodes": {"count": 2, "cpu": "500m"},
        "checkpoint": {"everyBatches": 5, "location": f"{folder}/checkpoints"},
        "sink": {"location": f"{folder}/sink"},
        "kubernetes": {
            "volumes": [{"claim": "data", "mountPath": DATA}],
            "nodeSelector": {"pool": name},
            "driver": {"cpu": "2", "memory": "1536Mi"},
            "executor": {"spread": "required"},
        },
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "metadata": meta, "spec": spec}


class Counted(Streaming):
    """One such topology."""

    @classmethod
    def running(
        cls, cluster: KubeCluster, name: str, change: Callable[[dict[str, Any]], None] = lambda body: None
    ) -> Iterator[Counted]:
        """For a fixture; `change`: of its resource, before it is made."""
        resource = body(name)
        change(resource)
        run = cls(cluster, name, resource)
        with run.at_work([LARGE, CPU]):
            yield run

    # -- what is seen ------------------------------------------------------------------------------------------------

    def epoch(self) -> str:
        """Of the driver that has reported last."""
        return str(self.progress().get("driver"))

    def driver_pod(self) -> dict[str, Any]:
        (found,) = scenario.pods(self.cluster, self.name, "driver")
        return found

    def said(self, reason: str) -> list[str]:
        """Messages of the topology's Events with this reason."""
        found = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        mine = [e for e in found if e["involvedObject"]["name"] == self.name]
        return [e["message"] for e in mine if e["reason"] == reason]

    def records(self, folder: str) -> dict[str, dict[str, Any]]:
        """What drivers have written down at the checkpoint location, by name."""
        files = (self.folder / "checkpoints" / folder).glob("*.json")
        return {file.name: json.loads(file.read_text()) for file in files}

    # -- what is done ------------------------------------------------------------------------------------------------

    def change(self, **spec: Any) -> None:
        """Other fields of the spec."""
        self.body["spec"] |= spec
        self.cluster.api.patch(self.path, {"spec": spec}, MERGE)

    def operators(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The operators with other parameters of one of them."""
        found = self.body["spec"]["operators"]
        return [o | {"with": parameters} if o["name"] == name else o for o in found]

    def await_driver(self, epoch: str) -> None:
        """That one is the newest, everything is at work, and its incident is closed."""
        self.until(lambda: self.epoch() == epoch, f"driver {epoch} reports", START_S)
        began = self.newest()
        self.until(lambda: self.newest() > began, "its first checkpoint", BACK_S)
        self.await_recovery()

    def end(self) -> int:
        """The stream ends with the batches that are there now; how many have rows."""
        self.end_after(0)
        return int(self.progress()["horizon"]) - 1  # the last batch follows the rows

    def finish(self) -> None:
        """The end of the stream, and the verdict on its rows."""
        self.check(self.end())

    # -- the verdict -------------------------------------------------------------------------------------------------

    def column(self, query: str, column: str) -> dict[int, list[Any]]:
        """The values of each batch that is shown."""
        files = sorted((self.folder / "sink" / query / "0").glob("batch-*.jsonl"))
        batch = {file: int(file.stem.partition("-")[2]) for file in files}
        return {
            batch[file]: [json.loads(line)[column] for line in file.read_text().splitlines()]
            for file in files
        }

    def rows(self, batches: int) -> dict[int, list[int]]:
        """The rows of each batch: each row once, in order, in so many batches."""
        shown = self.column("all", "n")
        found = [n for batch in sorted(shown) for n in shown[batch]]
        assert found == list(range(len(found)))
        assert sum(bool(rows) for rows in shown.values()) == batches
        return shown

    def check(self, batches: int) -> None:
        """Each row once, in order, in each query; states that were neither lost nor made twice."""
        shown = self.rows(batches)
        assert self.column("shaky", "n") == shown
        seen = self.column("seen", "seen")
        assert seen == {b: [sum(len(shown[a]) for a in shown if a <= b)] for b in seen}
        totals, tosses = self.column("total", "total"), self.column("total", "toss")
        assert seen.keys() == totals.keys() == tosses.keys() == shown.keys()
        assert all(totals[b] == [totals[a][0] + tosses[b][0]] for a, b in pairwise(sorted(totals)))

    def picked(self, boundary: int, before: int, after: int) -> None:
        """Up to the batch `boundary` the multiples of one number, then those of another."""
        shown, picked = self.column("all", "n"), self.column("pick", "n")
        for batch, found in shown.items():
            divisor = before if batch <= boundary else after
            assert picked.get(batch, []) == [n for n in found if n % divisor == 0], batch
