"""Load is levelled on a real cluster after two of four nodes were killed and others have come, and the output stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.status.query_state import RunState
from reprise.scheduler import Desired
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4
CPU_MILLI = 1000
"""The topology declares 1,170: two nodes hold everything under the cap, 58 points each, where the mean of four is 29."""


@pytest.fixture(scope="module")
def roomy(cluster: ToldCluster) -> Iterator[ToldCluster]:
    with cluster.announcing(CPU_MILLI) as roomy:
        yield roomy


def declared(partition: str) -> int:
    return 60 if partition in ("source.0", "parser.0") else 70


def fullest(desired: Desired) -> int:
    """Milli-CPU declared by the partitions of the node that has most."""
    load = Counter[str]()
    for partition, node in desired.assignment.items():
        load[node] += declared(partition)
    return max(load.values())


def test_load_is_level_again_when_other_nodes_have_come(roomy: ToldCluster, tmp_path: Path) -> None:
    changes = {"nodes.cpu": "1", "recovery.rebalance": True}
    resource = scenario.without_end(scenario.topology2(NODES, **changes), tmp_path)
    out = tmp_path / "out"
    wanted: list[Desired] = []

    def look(state: RunState, _: object) -> None:
        seen = state.observation
        if seen.desired is not None and (not wanted or wanted[-1] != seen.desired):
            wanted.append(seen.desired)

    faults = [{"on": "checkpoint", "kill": ["n1", "n2"]}, {"on": "plan", "delay": "8s", "add": 2}]
    quiet = scenario.quiet_again(faults)

    def level(state: RunState, actions: list[dict[str, Any]]) -> bool:
        desired = state.observation.desired
        over = desired is not None and desired.rebalancing is not None and desired.rebalancing.over
        return over and quiet(state, actions)

    result = scenario.run(resource, roomy, out, faults, watch=look, until=level)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    (incident,) = result.incident["incidents"]
    assert incident["kind"] == "correlated"
    moved = [d.moving for d in wanted if d.moving is not None and d.moving.to]
    assert all(moving.rebalances and len(moving.to) == 1 for moving in moved)
    assert moved, "nodes that came were given something in the incident already"
    last = wanted[-1]
    assert last.rebalancing is not None
    assert fullest(last) < max(map(fullest, wanted))
    # measured load may differ from what is declared, by less than this
    assert fullest(last) <= sum(declared(p) for p in last.assignment) / NODES + CPU_MILLI * 0.15
    assert last.generation == wanted[0].generation, "nobody went back"
