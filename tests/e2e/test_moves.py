"""Nodes that are emptied before they go, on a real cluster: by `reprise drain` and by a notice; the output stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.cli.target_local import ZooKeeperTarget
from reprise.controller.local.report.layout import read_record
from reprise.controller.status.partition_state import NodeState, node_states
from reprise.controller.status.query_state import RunState
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4
NOTICE_S = 20
"""How long before its nodes go a notice comes.  A query stands still for two seconds of it on two cores and for sixteen on a
machine with far too much to do; how long in comparison with a loss is what `make bench-notice` measures."""


@pytest.fixture(scope="module")
def roomy(cluster: ToldCluster) -> Iterator[ToldCluster]:
    with cluster.announcing(4000) as roomy:
        yield roomy


def stood_still(out: Path, since: float) -> dict[str, float]:
    """The longest time between two batches of each query after a moment, seconds."""
    shown: dict[str, list[float]] = {}
    for write in scenario.writes(out):
        if write["at"] >= since:
            shown.setdefault(write["query"], []).append(write["at"])
    return {query: max((b - a for a, b in pairwise(sorted(at))), default=0.0) for query, at in shown.items()}


def test_a_node_is_emptied_under_load_and_its_target_is_killed_in_the_middle(
    roomy: ToldCluster, tmp_path: Path
) -> None:
    resource = scenario.without_end(scenario.topology2(NODES), tmp_path)
    out = tmp_path / "out"
    seen: dict[str, Any] = {}

    def look(state: RunState, _: object) -> None:
        observation = state.observation
        desired, progress = observation.desired, observation.progress
        if desired is None or progress is None or progress.horizon < 15:
            return
        if "node" not in seen:
            seen["node"] = sorted(set(desired.assignment.values()))[1]
            seen["before"] = dict(desired.assignment)
            record = read_record(out)
            assert record is not None
            with ZooKeeperTarget(
                record["zk"], record["root"], lambda: resource, access=record["zkAccess"]
            ) as it:
                it.drain(seen["node"].partition("#")[0], True)
        moved = {p: n for p, n in desired.assignment.items() if n != seen["before"][p]}
        if moved and "killed" not in seen:
            seen["killed"] = sorted(moved.values())[0].partition("#")[0]
            roomy.kill([seen["killed"]])
        if seen["node"] in observation.nodes:
            seen["state"] = node_states([seen["node"]], observation)[seen["node"]]

    def emptied(state: RunState, actions: list[dict[str, Any]]) -> bool:
        drained = "killed" in seen and seen.get("state") is NodeState.DRAINED
        return drained and len(state.observation.closed) > 0 and scenario.quiet_again([])(state, actions)

    result = scenario.run(resource, roomy, out, [], watch=look, until=emptied)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert seen["state"] is NodeState.DRAINED
    (incident,) = result.incident["incidents"]
    assert any(seen["killed"] in str(node) for node in incident["lost_nodes"])


def test_two_nodes_that_were_given_notice_are_no_loss(roomy: ToldCluster, tmp_path: Path) -> None:
    resource = scenario.without_end(scenario.topology2(NODES), tmp_path)
    faults = [{"on": "checkpoint", "notice": ["n2", "n3"], "for": f"{NOTICE_S}s"}]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, roomy, tmp_path / "out", faults, until=over)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert result.incident["incidents"] == []
    noticed = next(a["time"] for a in result.record["actions"] if a["action"] == "notice")
    stood = stood_still(tmp_path / "out", noticed)
    assert max(stood.values()) < 3 * NOTICE_S, "a query stood still for longer than a hand-over ever takes"
