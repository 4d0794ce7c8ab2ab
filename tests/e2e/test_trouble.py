"""What is not a node loss, on a real cluster: code that raises, a damaged checkpoint, a disk that is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.report.compare import pieces
from reprise.controller.local.run.config import Outcome
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology, load_text, load_topology, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

PROJECT = Path(__file__).parents[2]
POISON_AT = 12
BRANCHES = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: branches}
spec:
  batch: {interval: 300ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource", with: {rate: 200, batches: 30, tags: 50}}
  operators:
    - {name: bad, class: "tests.support.coin:RaisesAt", with: {batch: 12}, parallelism: 2,
       inputs: [{from: tweets, by: [tweet]}], output: {}}
    - {name: good, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: tweets}], output: {priority: 9}}
  checkpoint: {everyBatches: 5}
  nodes: {count: 3, cpu: 200m}
"""


def minimal(**changes: Any) -> StreamTopology:
    return override(load_topology("examples/minimal.yaml"), {"nodes.cpu": "200m"} | changes)


def test_a_poison_batch_stops_its_queries_alone_and_is_named(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    result = scenario.run(load_text(BRANCHES), cluster, tmp_path / "out", [], python_path=str(PROJECT))
    assert result.outcome is Outcome.POISONED
    for partition in ("bad.0", "bad.1"):
        assert (
            f"operator bad, partition {partition}, batch {POISON_AT}: ValueError: no sevens" in result.reason
        )
    written = {(query, batch) for query, batch in pieces(result.out)[0]}
    assert {batch for query, batch in written if query.startswith("bad")} == set(range(1, POISON_AT))
    sound = scenario.write_expected(
        override(load_text(BRANCHES), {"operators[bad].with.batch": 10_000}), tmp_path / "sound"
    )
    for (query, batch), path in pieces(sound)[0].items():
        if query == "good.0":
            assert pieces(result.out)[0][query, batch].read_bytes() == path.read_bytes()


def test_a_damaged_checkpoint_is_found_and_the_one_before_serves(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The second and later checkpoints lose their last bytes on disk; two nodes are killed after that."""
    resource = scenario.without_end(minimal(**{"checkpoint.keep": 10}), tmp_path)
    out, damaged = tmp_path / "out", set[int]()

    def damage(state: RunState, _: object) -> None:
        for manifest in sorted((out / "checkpoints").glob("cp-*/COMPLETE.*json"))[1:]:
            position = int(manifest.parent.name.removeprefix("cp-"))
            if state.observation.incident is None and position not in damaged:
                for path in manifest.parent.glob("*.state"):
                    path.write_bytes(path.read_bytes()[:-3])
                damaged.add(position)

    faults = [
        {"on": "checkpoint", "count": 2, "delay": "1s", "kill": ["@count"]},
        {"on": "incident", "delay": "1s", "add": 2},
    ]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, cluster, out, faults, watch=damage, until=over)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert damaged
    told = [line["detail"] for line in result.incident["timeline"] if line["what"] == "checkpoint-damaged"]
    assert told
    assert "cannot be used: everything begins again at" in told[0]


def executor_on(cluster: EmbeddedCluster, node: str) -> psutil.Process:
    """The JVM of a node."""
    home = cluster.scratch / "nodes" / node
    [found] = [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if "--executor-id" in (process.info["cmdline"] or ())
        and Path(process.info["cwd"] or "/").is_relative_to(home)
    ]
    return found


def test_a_node_whose_executor_dies_alone_is_used_again(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Its agent starts another one, to which no task has gone yet: an exchange begins where a partition host is."""
    resource, out = scenario.without_end(minimal(), tmp_path), tmp_path / "out"
    seen: list[str] = []

    def kill(state: RunState, _: object) -> None:
        progress = state.observation.progress
        if progress is None or not state.observation.checkpoints or not progress.nodes:
            return
        if not seen:
            seen.append(min(progress.nodes))
            executor_on(cluster, seen[0].partition("#")[0]).kill()
        elif len(seen) == 1 and seen[0] not in progress.nodes:
            seen.append("gone")
        elif len(seen) == 2 and seen[0] in progress.nodes:
            seen.append("back")

    def back(state: RunState, _: object) -> bool:
        return len(seen) == 3 and state.observation.incident is None

    result = scenario.run(resource, cluster, out, [], watch=kill, until=back)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert seen[1:] == ["gone", "back"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of ten pages, which is less than checkpoints, or output, take."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.fail("mounting a small file system takes root; run this test in a container or as root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "reprise-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("what", ["sink", "checkpoints"])
def test_a_full_disk_delays_output_and_checkpoints_and_loses_nothing(
    what: str, cluster: EmbeddedCluster, tmp_path: Path, small_disk: Path
) -> None:
    resource = minimal(**({"checkpoint.location": str(small_disk)} if what == "checkpoints" else {}))
    sink = tmp_path / "out" / "sink"
    complaints: list[str] = []

    def enlarge(state: RunState, _: object) -> None:
        """Puts the sink onto the small disk at first, and makes room there once the run says what it waits for."""
        if what == "sink" and not sink.is_symlink():
            sink.rmdir()
            sink.symlink_to(small_disk)
        seen = [p for p in state.observation.problems if "No space left on device" in p]
        if seen and not complaints:
            complaints.extend(seen)
            subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)

    result = scenario.run(resource, cluster, tmp_path / "out", [], watch=enlarge)
    assert any(str(small_disk) in p or str(sink) in p for p in complaints), complaints
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert result.record["restarts"] == {"coordinator": 0, "driver": 0}
    assert result.incident["incidents"] == []
