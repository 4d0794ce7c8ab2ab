"""`batch.order: arrival` with `protocol: uncoordinated` on a real cluster: SIGKILL of two of four nodes, and of the driver.

Each takes everything back to a line, of which inputs need not be even; the rows shown are those without failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import Outcome
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.snapshot import Kind
from reprise.spark_jobs.topology import load_text, override
from tests.e2e import scenario, test_arrival
from tests.e2e.test_arrival import TOPOLOGY, definition, require_rows

pytestmark = [pytest.mark.slow, pytest.mark.wide]

PROJECT = Path(__file__).parents[2]
OWN_CLOCKS = {
    "checkpoint.protocol": "uncoordinated",
    "checkpoint.log": "checkpointed",
    "checkpoint.keep": 100,
    "sources[west].class": "tests.support.straggling:ComesInBursts",
}
NODES: list[Mapping[str, Any]] = [
    {"on": "checkpoint", "count": 2, "delay": "1s", "kill": ["n3", "n4"]},
    {"on": "plan", "delay": "3s", "add": 2},
]
DRIVER: list[Mapping[str, Any]] = [{"on": "checkpoint", "count": 2, "delay": "1s", "crash": "driver"}]


class DriverWatch(test_arrival.Watch):
    """Ends the stream once partitions apply in the order of arrival below the second driver."""

    def __call__(self, state: RunState, _actions: list[dict[str, Any]]) -> None:
        progress = state.observation.progress
        if progress is not None and progress.driver == "2" and state.observation.incident is None:
            self.end_if_early(progress)


@pytest.mark.parametrize(
    ("faults", "watching"),
    [
        pytest.param(NODES, test_arrival.Watch, id="nodes"),
        pytest.param(DRIVER, DriverWatch, id="driver"),
    ],
)
def test_rows_are_those_without_failures(
    large_nodes: EmbeddedCluster,
    tmp_path: Path,
    faults: list[Mapping[str, Any]],
    watching: type[test_arrival.Watch],
) -> None:
    watch = watching(tmp_path / "ends")
    resource = override(load_text(TOPOLOGY.replace("FILE", str(watch.ends))), OWN_CLOCKS)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, watch, python_path=str(PROJECT))
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    assert result.record["unfired"] == []
    store = CheckpointStore(str(result.out / "checkpoints"))
    lines = {name: store.manifest(name).snapshots for name in store.positions()}
    uneven = {name for name, line in lines.items() if not all(s.even for s in line.values())}
    assert uneven, "some line has inputs that are further than others"
    assert Kind.ARRIVAL in {s.kind for line in lines.values() for s in line.values()}
    taken = re.findall(
        r"event=line-taken .*everything=True oldest=(\d+)", (result.out / "logs" / "driver.log").read_text()
    )
    assert any(int(oldest) > 0 for oldest in taken), (
        "everything goes back to a line, and not to the beginning"
    )
    final = max(lines)
    in_time = override(resource, {"sources[west].class": "tests.support.straggling:EndsWhenTold"})
    expected = definition(in_time, tmp_path / "definition", store.manifest(final).offsets)
    require_rows(result.out, expected, final)
