"""Exactly once, whatever fails and when: real Spark, real ZooKeeper, real SIGKILL.

Nodes run the 17 partitions of Topology 2 under declared CPU that fills them; a node name in a fault that is not there
any more is taken by its position.  Every scenario ends with the same verdict, `scenario.assert_exactly_once`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.status.query_state import RunState, Status
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = pytest.mark.slow

ALL_OUTPUTS = [f"@o{i}" for i in range(15)]

SCENARIOS: dict[str, list[Mapping[str, Any]]] = {
    "8 of 10": [
        {"on": "checkpoint", "kill": ["n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10"]},
        {"on": "plan", "add": 3},
        {"on": "plan", "delay": "4s", "add": 3},
        {"on": "plan", "delay": "8s", "add": 2},
    ],
    "all outputs": [
        {"on": "checkpoint", "kill": ALL_OUTPUTS},
        {"after": "0", "delay": "3s", "add": 5},
        {"after": "1", "delay": "5s", "add": 5},
    ],
    "second burst": [
        {"on": "checkpoint", "kill": ["n3", "n4", "n5"]},
        {"on": "plan", "add": 2},
        {"on": "plan", "delay": "5s", "kill": ["n1", "n6"]},
        {"on": "plan", "delay": "6s", "add": 3},
    ],
    "zombies": [{"on": "checkpoint", "freeze": ["n3", "n4"], "for": "10s"}, {"on": "plan", "delay": "2s", "add": 2}],
    "during the rollback": [
        {"on": "checkpoint", "kill": ["n3", "n4"]},
        {"on": "plan", "kill": ["n5"]},
        {"on": "plan", "delay": "1s", "add": 3},
    ],
    "during a plan": [
        {"on": "checkpoint", "kill": ["n3", "n4", "n5"]},
        {"on": "incident", "crash": "coordinator"},
        {"on": "incident", "delay": "1s", "kill": ["n6"]},
        {"on": "incident", "delay": "3s", "add": 4},
    ],
    "zookeeper restarted": [
        {"on": "checkpoint", "crash": "zookeeper", "for": "3s"},
        {"on": "checkpoint", "count": 2, "kill": ["n8", "n9"]},
        {"on": "plan", "crash": "zookeeper", "for": "3s"},
        {"on": "plan", "delay": "8s", "add": 2},
    ],
    "driver killed in an incident": [
        {"on": "checkpoint", "kill": ["n3", "n4"]},
        {"on": "plan", "crash": "driver"},
        {"on": "plan", "delay": "2s", "add": 2},
    ],
}  # fmt: skip
"""The smaller losses, and the crash of each process alone, are in `test_random_faults` and `test_driver_restart`."""


GOES_ON = 6
"""So many batches further, what is available has gone on by itself."""


class OneByOne:
    """Adds a node whenever the queries that are back have gone on by themselves, until all queries are back."""

    def __init__(self, cluster: ToldCluster) -> None:
        self.cluster, self.back = cluster, list[frozenset[str]]()
        """Available queries before each node."""
        self.spans = list[tuple[float, float]]()
        """From when to when they were those that are available."""
        self._since: tuple[frozenset[str], int, float] = frozenset(), 0, 0.0

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        seen = state.observation
        if seen.incident is None or seen.progress is None or not self.killed(actions):
            return
        available = frozenset(query.id for query in state.queries if query.status is Status.AVAILABLE)
        if available != self._since[0]:
            self._since = available, seen.progress.horizon, seen.time
        more = len(available) > (len(self.back[-1]) if self.back else 0)
        if more and len(available) < len(state.queries) and seen.progress.horizon >= self._since[1] + GOES_ON:
            self.back.append(available)
            self.spans.append((self._since[2], seen.time))
            self.cluster.add_node()

    def over(self, state: RunState, actions: list[dict[str, Any]]) -> bool:
        return self.killed(actions) and len(self.back) > 0 and scenario.quiet_again([])(state, actions)

    @staticmethod
    def killed(actions: list[dict[str, Any]]) -> bool:
        return any(action["action"] == "kill" for action in actions)


@pytest.fixture
def roomy(cluster: ToldCluster) -> Iterator[ToldCluster]:
    """Nodes with room for half as much again as they have: three are needed for all of Topology 2."""
    with cluster.announcing(700) as roomy:
        yield roomy


def test_three_of_four_nodes_are_lost_and_queries_come_back_by_value_as_nodes_come(
    roomy: ToldCluster, tmp_path: Path
) -> None:
    """The most valuable query goes on with the node that is left, more with each node that comes."""
    resource = scenario.without_end(scenario.topology2(4), tmp_path)
    nodes = OneByOne(roomy)
    faults = [{"on": "checkpoint", "kill": ["n2", "n3", "n4"]}]
    result = scenario.run(resource, roomy, tmp_path / "out", faults, nodes, until=nodes.over)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert "o0.0" in nodes.back[0], "the most valuable query of Topology 2 fits beside what lives"
    assert len(nodes.back) > 1, "one node has no room for all"
    assert all(fewer < more for fewer, more in pairwise(nodes.back)), (
        "nothing that is back is taken away again"
    )
    lines = scenario.writes(result.out)
    for available, (since, until) in zip(nodes.back, nodes.spans, strict=True):
        went_on = {line["query"] for line in lines if since < line["at"] <= until}
        assert available <= went_on, f"stood still before the next node: {available - went_on}"
    incident = next(i for i in result.incident["incidents"] if i["lost_nodes"])
    assert incident["kind"] == "correlated"
    log = (result.out / "logs" / "driver.log").read_text()
    assert "event=exchange " in log and "event=chained " not in log, "an exchange carries messages by default"
    assert not re.search(r"event=job-failed .* reason='exchange \d+: ", log), (
        "the driver's own end of it works"
    )


@pytest.mark.wide
@pytest.mark.parametrize("name", SCENARIOS)
def test_output_is_as_without_faults(name: str, cluster: ToldCluster, tmp_path: Path) -> None:
    # nobody believes in a loss for a session of the nodes, which is long here, after ZooKeeper was away
    in_time = not any(fault.get("crash") == "zookeeper" for fault in SCENARIOS[name])
    result = scenario.survive(scenario.topology2(), cluster, tmp_path, SCENARIOS[name], in_time=in_time)
    assert result.incident["incidents"], "the faults must have been noticed"


@pytest.mark.wide
def test_an_exchange_of_sixteen_nodes_loses_thirteen(cluster: ToldCluster, tmp_path: Path) -> None:
    """240 links; and the exchanges over 3, 8 and 16 nodes that follow."""
    faults: list[Mapping[str, Any]] = [
        {"on": "checkpoint", "kill": [f"n{i}" for i in range(4, 17)]},
        {"on": "plan", "add": 5},
        {"on": "plan", "delay": "8s", "add": 8},
    ]
    result = scenario.survive(scenario.topology2(16), cluster, tmp_path, faults)
    log = (result.out / "logs" / "driver.log").read_text()
    for nodes in (3, 16):
        assert re.search(rf"event=exchange number=\d+ nodes={nodes}\n", log), "all of them carried messages"


@pytest.mark.wide
@pytest.mark.parametrize("strategy", ["blocking", "operator-centric", "best-case"])
def test_the_other_strategies_keep_the_output_too(
    strategy: str, cluster: ToldCluster, tmp_path: Path
) -> None:
    """Nodes come by the clock of the incident: blocking recovery has no plan before they are all there, and best case has
    them from the start.  They are lost once loads are steady: an incident counts the loads with which it began, and the
    operator-centric planner leaves out what it finds no node for with those of the first seconds."""
    faults: list[Mapping[str, Any]] = [{"on": "checkpoint", "count": 4, "kill": ["n3", "n4", "n5", "n6"]}]
    if strategy != "best-case":
        faults += [{"on": "incident", "delay": f"{delay}s", "add": 2} for delay in (3, 7)]
    scenario.survive(scenario.topology2(**{"recovery.strategy": strategy}), cluster, tmp_path, faults)
