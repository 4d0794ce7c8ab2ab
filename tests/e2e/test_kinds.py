"""Each kind of checkpoint, state and query on a real cluster: SIGKILL of two of four nodes, or of the driver, and the output
as without faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.run.config import RunResult
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4
Faults = Sequence[Mapping[str, Any]]
TWO_NODES: Faults = [
    {"on": "checkpoint", "count": 2, "kill": ["n3", "n4"]},
    {"on": "plan", "delay": "1s", "add": 2},
]
DRIVER: Faults = [{"on": "checkpoint", "count": 2, "crash": "driver"}]


def topology2(**changes: Any) -> StreamTopology:
    """Topology 2 on nodes with room for what another one had."""
    return scenario.topology2(NODES, **{"nodes.cpu": "600m"} | changes)


def own_clocks(protocol: str, log: str) -> StreamTopology:
    settings = {"checkpoint.protocol": protocol, "checkpoint.log": log, "checkpoint.interval": "2s"}
    return topology2(**settings)


def bids() -> StreamTopology:
    """Many auctions with few bids, whose windows stay open for long, beside a few with many."""
    changes = {
        "sources[bids].with.rate": 400,
        "nodes.count": NODES,
        "nodes.cpu": "600m",
        "checkpoint.interval": "1s",
        "checkpoint.eventual": {"replay": 1500, "every": "20ms"},
    }
    return override(load_topology("examples/count-windows.yaml"), changes)


def joins() -> StreamTopology:
    found = load_topology("examples/nexmark-q8.yaml", {"checkpoint.interval": "3s"})
    given = {f"sources[{s.name}].with": {**s.parameters, "rate": 400, "hot": 0.2} for s in found.sources}
    return override(found, given)


def shares_files(result: RunResult) -> None:
    """Pages are in the files of earlier checkpoints, and those are whole."""
    store = CheckpointStore(str(result.out / "checkpoints"))
    kept = [store.verify(position) for position in store.positions()]
    assert {path for manifest in kept for file in manifest.files.values() for path in file.others}
    assert any(file.all_bytes for manifest in kept for file in manifest.files.values())


def stores_logs(result: RunResult) -> None:
    assert list((result.out / "checkpoints").glob("cp-*/average.*.log")), "windows are stored in logs"


def goes_back_to_a_line(result: RunResult) -> None:
    """What was not lost goes back only where it has to."""
    assert lines(result, "line-recorded")
    taken = lines(result, "line-taken")
    assert any("back=0 everything=False" in line for line in taken), taken
    assert "went-back" in {line["what"] for line in result.incident["timeline"]}


def was_forced(result: RunResult) -> None:
    goes_back_to_a_line(result)
    assert " forced=0 " not in lines(result, "line-taken")[-1]


def records_a_line(result: RunResult) -> None:
    assert lines(result, "line-recorded")


def lines(result: RunResult, event: str) -> list[str]:
    """Lines of the driver's log about an event."""
    log = (result.out / "logs" / "driver.log").read_text()
    return [line for line in log.splitlines() if f"event={event}" in line]


@dataclass(frozen=True)
class Kind:
    resource: Callable[[], StreamTopology]
    faults: Faults = tuple(TWO_NODES)  # a list is no default of a field
    check: Callable[[RunResult], None] = lambda _: None


KINDS = {
    "paged": Kind(lambda: topology2(**{"checkpoint.state": "paged", "checkpoint.interval": "1s"}), check=shares_files),
    "eventual": Kind(bids, check=stores_logs),
    "uncoordinated": Kind(lambda: own_clocks("uncoordinated", "checkpointed"), check=goes_back_to_a_line),
    "uncoordinated, driver": Kind(lambda: own_clocks("uncoordinated", "memory"), DRIVER, records_a_line),
    "induced": Kind(lambda: own_clocks("communication-induced", "checkpointed"), check=was_forced),
    "a join over windows": Kind(joins),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_output_is_as_without_faults(name: str, large_nodes: ToldCluster, tmp_path: Path) -> None:
    kind = KINDS[name]
    result = scenario.survive(kind.resource(), large_nodes, tmp_path, kind.faults)
    assert result.incident["incidents"], "the faults must have been noticed"
    kind.check(result)


def test_a_cyclic_query_has_the_output_that_it_has_without_faults(
    large_nodes: ToldCluster, tmp_path: Path
) -> None:
    """Few nodes and so many paths that most batches bring some over the feedback edge.  Their number grows with the stream,
    so that has an end, and stands in the middle until nodes are lost."""
    gate = tmp_path / "open"
    found = load_topology("examples/reachability.yaml", {"checkpoint": {"everyBatches": 3}})
    changes: dict[str, Any] = {}
    for source in found.sources:
        own = {"rate": 40, "nodes": 150, "batches": 16, "upto": 8, "gate": str(gate)}
        changes[f"sources[{source.name}].class"] = "tests.support.straggling:GatedChanges"
        changes[f"sources[{source.name}].with"] = {**source.parameters, **own}

    def opens(state: RunState, _: object) -> None:
        if state.observation.incident is not None:
            gate.touch()

    resource, path = override(found, changes), str(scenario.PROJECT)
    result = scenario.run(resource, large_nodes, tmp_path / "out", TWO_NODES, opens, python_path=path)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
