"""Fault schedules, one with each kind of process and seeded ones: small topology, four nodes, the same verdict.

Seeds are fixed, so a failure can be run again: `pytest tests/e2e/test_random_faults.py -k "seed7"`.  Faults follow what the
run has reached and not its batches, and the stream ends when all is well again: no machine is too slow for that.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = pytest.mark.slow
SEEDS = (5, 7, 11, 16)
"""With all kinds of faults among them."""
KINDS = ["kill", "freeze", "coordinator", "driver", "zookeeper"]
EACH_PROCESS: list[Mapping[str, Any]] = [
    {"on": "checkpoint", "kill": ["n2", "n4"]},
    {"on": "plan", "crash": "coordinator"},
    {"after": "1", "delay": "3s", "add": 2},
    {"on": "closed", "crash": "driver"},
    {"after": "3", "delay": "4s", "crash": "zookeeper", "for": "3s"},
]
"""Two nodes, the coordinator in the middle of their recovery, the driver, and ZooKeeper while the next driver starts."""


def resource() -> StreamTopology:
    return override(
        load_topology("examples/minimal.yaml"),
        {"nodes.count": 4, "checkpoint.everyBatches": 6},
    )


def schedule(seed: int) -> list[dict[str, Any]]:
    """Two or three bursts of kills, freezes or crashes, with capacity coming back after each.  A burst comes some seconds
    after the one before, or when a further checkpoint is complete."""
    rng = random.Random(seed)
    faults: list[dict[str, Any]] = []
    for burst in range(1, 1 + rng.randint(2, 3)):
        kind = rng.choices(KINDS, [6, 2, 1, 1, 1])[0]
        when: dict[str, Any] = {"on": "checkpoint", "count": burst, "delay": f"{rng.randint(0, 2)}s"}
        if faults and rng.random() < 0.5:
            when = {"after": str(len(faults) - 1), "delay": f"{rng.randint(1, 6)}s"}
        if kind in ("kill", "freeze"):
            nodes = [f"n{i}" for i in rng.sample(range(1, 5), rng.randint(1, 3))]
            faults.append(when | {kind: nodes} | ({"for": "8s"} if kind == "freeze" else {}))
            faults.append(
                {"after": str(len(faults) - 1), "delay": f"{rng.randint(1, 6)}s", "add": len(nodes)}
            )
        else:
            faults.append(when | {"crash": kind} | ({"for": "3s"} if kind == "zookeeper" else {}))
    return faults


def test_the_schedules_have_each_kind_of_fault() -> None:
    faults = [fault for seed in SEEDS for fault in schedule(seed)]
    assert {kind for fault in faults for kind in (*fault, fault.get("crash")) if kind in KINDS} == {*KINDS}


def test_each_process_is_lost_once(cluster: ToldCluster, tmp_path: Path) -> None:
    scenario.survive(resource(), cluster, tmp_path, EACH_PROCESS)


@pytest.mark.wide
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{seed}")
def test_random_schedule(seed: int, cluster: ToldCluster, tmp_path: Path) -> None:
    scenario.survive(resource(), cluster, tmp_path, schedule(seed))
