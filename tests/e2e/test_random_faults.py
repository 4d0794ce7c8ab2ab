"""Random fault schedules, seeded: what a person would not think of.  Small topology, four nodes, the same verdict.

Seeds are fixed, so a failure can be run again: `pytest tests/e2e/test_random_faults.py -k "seed7"`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SEEDS = 20
CORE = (0,)
"""Seeds run by `make test`: two nodes, the driver and ZooKeeper; all by `make test-soak`.  The simulated world runs
hundreds of schedules of all kinds of faults in `make test`, and thousands in `make test-soak`."""
KINDS = ["kill", "freeze", "coordinator", "driver", "zookeeper"]


def resource() -> StreamTopology:
    return override(
        load_topology("examples/minimal.yaml"),
        {"nodes.count": 4, "checkpoint.everyBatches": 6, "sources[tweets].with.batches": 30},
    )


@pytest.fixture(scope="module")
def expected_minimal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scenario.write_expected(resource(), tmp_path_factory.mktemp("expected"))


def schedule(seed: int) -> list[dict[str, Any]]:
    """Two or three bursts of kills, freezes or crashes at random batches, with capacity coming back after each."""
    rng = random.Random(seed)
    faults: list[dict[str, Any]] = []
    for batch in sorted(rng.sample(range(4, 24), rng.randint(2, 3))):
        kind = rng.choices(KINDS, [6, 2, 1, 1, 1])[0]
        if kind in ("kill", "freeze"):
            nodes = [f"n{i}" for i in rng.sample(range(1, 5), rng.randint(1, 3))]
            faults.append({"batch": batch, kind: nodes} | ({"for": "8s"} if kind == "freeze" else {}))
            faults.append(
                {"after": str(len(faults) - 1), "delay": f"{rng.randint(1, 6)}s", "add": len(nodes)}
            )
        else:
            faults.append({"batch": batch, "crash": kind} | ({"for": "3s"} if kind == "zookeeper" else {}))
    return faults


def _seeds() -> list[Any]:
    return [
        pytest.param(s, marks=[] if s in CORE else [pytest.mark.soak], id=f"seed{s}") for s in range(SEEDS)
    ]


def test_the_schedules_have_each_kind_of_fault() -> None:
    faults = [fault for seed in range(SEEDS) for fault in schedule(seed)]
    assert {kind for fault in faults for kind in (*fault, fault.get("crash")) if kind in KINDS} == {*KINDS}


@pytest.mark.parametrize("seed", _seeds())
def test_random_schedule(seed: int, cluster: EmbeddedCluster, expected_minimal: Path, tmp_path: Path) -> None:
    result = scenario.run(resource(), cluster, tmp_path / "out", schedule(seed))
    scenario.assert_exactly_once(result, expected_minimal)
