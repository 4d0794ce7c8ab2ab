"""A checkpoint store that sleeps through every read while half of a topology is restored, on a real cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest

from benchmarks.calm import HEALTHY, LOST, NODES, TOPOLOGY
from benchmarks.calm_parts import ASLEEP, PROTOCOL, SleepyFileSystem, make_known
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import load_topology, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

PROJECT = Path(__file__).parents[2]
SLEEP_S = 20.0
"""Much longer than anything else that holds a job up: a job that waited for one read could not be taken for another."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """All its processes know the store."""
    known = tmp_path_factory.mktemp("known")
    make_known(known)
    fsspec.register_implementation(PROTOCOL, SleepyFileSystem, clobber=True)
    with pytest.MonkeyPatch.context() as patch:
        before = [entry for entry in (os.environ.get("PYTHONPATH", ""),) if entry]
        patch.setenv("PYTHONPATH", os.pathsep.join([str(known), str(PROJECT), *before]))
        with scenario.cluster(NODES, cpu_milli=1000) as started:
            yield started


def test_a_store_that_sleeps_keeps_only_those_waiting_that_it_holds(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    changes = {
        "operators[heavy].with.megabytes": 4,
        "checkpoint.interval": "4s",
        "checkpoint.location": f"{PROTOCOL}://{tmp_path}/store/checkpoints",
    }
    resource = scenario.without_end(override(load_topology(TOPOLOGY), changes), tmp_path)
    asleep, woke = tmp_path / "store" / ASLEEP, list[float]()
    asleep.parent.mkdir()

    def look(state: RunState, _: object) -> None:
        incident = state.observation.incident
        if woke or incident is None or LOST not in incident.queries:
            return
        if incident.queries[LOST].restored_at:
            asleep.unlink()
            woke.append(time.time())
        elif not asleep.exists():
            asleep.write_text(str(SLEEP_S))

    faults = [{"on": "checkpoint", "delay": "1s", "kill": [f"@{LOST}"]}]
    quiet = scenario.quiet_again(faults)

    def awake(state: RunState, actions: list[dict[str, Any]]) -> bool:
        return bool(woke) and quiet(state, actions)

    result = scenario.run(resource, cluster, tmp_path / "out", faults, watch=look, until=awake)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    (incident, *_) = result.incident["incidents"]
    query, zero = incident["queries"][LOST], result.incident["zero"]
    assert woke
    assert query["restored"] - query["lost"] >= SLEEP_S
    lost, restored = zero + query["lost"], zero + query["restored"]
    shown = [w["at"] for w in scenario.writes(result.out) if w["query"] == HEALTHY]
    during = [lost, *sorted(at for at in shown if lost < at < restored), restored]
    assert max(b - a for a, b in pairwise(during)) < SLEEP_S, (
        "a job of the healthy query waited for a read of the other"
    )
    driver = (result.out / "logs" / "driver.log").read_text(errors="replace")
    assert driver.count("event=job-failed") <= 1, "the job in which the node was lost"
