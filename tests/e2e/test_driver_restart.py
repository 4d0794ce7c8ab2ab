"""A driver is killed on a real cluster, alone and with half of the nodes: the next one goes on with what lives."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.run.config import RunResult
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology, expand
from tests.e2e import scenario
from tests.support.ports import ports_in_a_row
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4
GRACE = "300s"
"""A driver and its executors begin in ten seconds on two idle cores, and in eighty on a machine with far too much to do."""
READ = re.compile(r'^reprise_restored_states_total\{.*origin="(node|store)".*\} (\S+)$', re.MULTILINE)


@pytest.fixture(scope="module")
def roomy(cluster: ToldCluster) -> Iterator[ToldCluster]:
    with cluster.announcing(4000) as roomy:
        yield roomy


def resource() -> StreamTopology:
    return scenario.topology2(NODES, **{"recovery.driverGrace": GRACE, "checkpoint.interval": "3s"})


class Watched:
    """What is seen of a run: the assignment at the time of the faults, and what drivers have read of stored states."""

    def __init__(self) -> None:
        self.before: dict[str, str] = {}
        self.generations: set[int] = set()
        self.read: dict[str, dict[str, float]] = {}
        self.port = ports_in_a_row(2)[0]

    def __call__(self, state: RunState, _: object) -> None:
        desired, progress = state.observation.desired, state.observation.progress
        if desired is None or progress is None:
            return
        self.generations.add(desired.generation)
        if progress.driver == "1":
            if state.observation.incident is None:
                self.before = dict(desired.assignment)
            return
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port + 1}/metrics", timeout=2) as page:
                found = READ.findall(page.read().decode())
            self.read[progress.driver] = {origin: float(number) for origin, number in found}


def told(result: RunResult) -> tuple[str, list[dict[str, Any]]]:
    """What is said of the new driver in the only incident, and the plans."""
    record = json.loads((result.out / "plans.json").read_text())
    (incident,) = record["incidents"]
    (said,) = [event["detail"] for event in incident["events"] if event["name"] == "driver-started"]
    return said, record["plans"]


def test_all_that_a_killed_driver_has_left_goes_on(roomy: ToldCluster, tmp_path: Path) -> None:
    seen = Watched()
    faults = [{"on": "checkpoint", "crash": "driver"}]
    result = scenario.survive(resource(), roomy, tmp_path, faults, watch=seen, metrics_port=seen.port)
    assert result.record["restarts"]["driver"] == 1
    said, plans = told(result)
    number = len(expand(resource()).partitions)
    assert f"goes on with {number} of {number} partitions" in said
    assert plans == [], "nothing was lost, so nothing is planned"
    assert len(seen.generations) == 1, "nobody goes back"
    assert seen.read == {"2": {"node": 0.0, "store": 0.0}}, "no state was read"


def test_with_half_of_the_nodes_only_what_was_there_is_restored(roomy: ToldCluster, tmp_path: Path) -> None:
    seen = Watched()
    faults = [{"on": "checkpoint", "crash": "driver"}, {"on": "checkpoint", "kill": ["n2", "n3"]}]
    result = scenario.survive(resource(), roomy, tmp_path, faults, watch=seen, metrics_port=seen.port)
    said, plans = told(result)
    killed = {
        name for action in result.record["actions"] if action["action"] == "kill" for name in action["nodes"]
    }
    lost = sorted(p for p, n in seen.before.items() if n.partition("#")[0] in killed)
    number = len(seen.before)
    assert 0 < len(lost) < number
    assert f"goes on with {number - len(lost)} of {number} partitions" in said
    # the coordinator may have planned for the driver that was gone, which carried nothing out
    assert sorted(plans[-1]["added"]) == lost, "nothing else"
    assert not any(plan["rollback"] for plan in plans)
    assert len(seen.generations) == 1, "nobody goes back"
    assert sum(seen.read["2"].values()) <= len(lost)
