"""Operators with `availability: active-standby` or `passive-standby` on a real cluster: SIGKILL of the node of a partition,
which goes on where its standby is, in another rack; nothing goes back, and the output is that of a run without a failure.
The same when the node was announced to go, also while another one is lost, and then nothing of it is lost; and what there is
when a standby is of no use, as its node is lost with that of its partition, or the driver is.  Where what a partition gives
cannot be given again, each batch is told in one version."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.controller.status.actions import BREAKS
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Desired, Progress
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, load_text, load_topology, override
from tests.e2e import scenario
from tests.support.coin import EVERY, TOLD_TO_TWO
from tests.support.hashtags import WITH_STANDBYS, at_pace

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NOTICE_S = 60
"""How long before its node goes a notice comes: longer than a promotion takes on the slowest machine, as it is killed
when that is seen."""
PASSIVE = WITH_STANDBYS.replace(
    "availability: active-standby", "availability: passive-standby\n      standby: {every: 3}"
)
assert PASSIVE.count("passive-standby") == 2


COUNT_AT = PASSIVE.index("    - name: count")
BOTH = WITH_STANDBYS[: WITH_STANDBYS.index("    - name: count")] + PASSIVE[COUNT_AT:]
BOTH = BOTH.replace("standby: {every: 3}", f"standby: {{every: 3, failureDomain: {scenario.RACK}}}")
BOTH = BOTH.replace("active-standby", f"active-standby\n      standby: {{failureDomain: {scenario.RACK}}}")
assert BOTH.count("active-standby") == BOTH.count("passive-standby") == 1
assert BOTH.count("failureDomain") == 2
Victims = Literal["both", "another", "former"]


TOLD = (
    TOLD_TO_TWO.replace("inputs: [{from: tweets}]", "inputs: [{from: tweets}]\n      output: {priority: 1}")
    .replace(f"every: {EVERY}}}", "every: 1000}")
    .replace("  recovery: {bufferMemory: 1Mi}\n", "")
)
"""`told` is an output, too, and its standby is sent as little as can be: at checkpoints, and when nobody could go on
without."""
assert TOLD.count("output:") == 3
assert "every: 1000" in TOLD


def test_a_partition_goes_on_where_its_standby_is(large_nodes: EmbeddedCluster, tmp_path: Path) -> None:
    """One of each kind, and each in another rack than its partition; the coordinator is lost, too."""
    resource = without_end(BOTH, tmp_path)
    faults = [{"on": "checkpoint", "kill": ["@count.0"]}, {"on": "checkpoint", "crash": "coordinator"}]
    racks, over = Racks(), scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, racks, in_time=True, until=over)
    assert_exactly_once(result, resource, tmp_path)
    assert {*racks.seen} == {"parse.0", "parse.1", "count.0", "count.1"}
    assert all(here != there for pairs in racks.seen.values() for here, there in pairs)
    (first, *_) = result.incident["incidents"]
    assert promotions(result, "count.0") == 1, "it was restored from the checkpoint"
    assert not any(plan["rollback"] for plan in first["plans"]), "everything went back"
    assert not any("count.0" in plan["added"] for plan in first["plans"]), "it was restored by a plan"


def test_a_partition_goes_on_where_its_next_standby_is(large_nodes: EmbeddedCluster, tmp_path: Path) -> None:
    """Its node is killed, and later the one on which it goes on."""
    resource = without_end(WITH_STANDBYS, tmp_path)
    twice = Twice(large_nodes)
    result = scenario.run(resource, large_nodes, tmp_path / "out", [], twice, in_time=True, until=twice.over)
    assert_exactly_once(result, resource, tmp_path)
    assert promotions(result, "count.0") == 2
    plans = [plan for incident in result.incident["incidents"] for plan in incident["plans"]]
    assert not any(plan["rollback"] for plan in plans), "everything went back"


class Twice:
    """Kills the node of `count.0` when its standby is as new as the checkpoint, and once more when the next one is; another
    node comes each time."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster, self.kills, self._killed_at = cluster, 0, 0.0

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        seen = state.observation
        if seen.desired is None or seen.progress is None or self.kills == 2:
            return
        ready = seen.progress.standbys.get("count.0", -1) >= max(seen.checkpoints, default=0) > 0
        if ready and self._over(state, actions):
            self.kills, self._killed_at = self.kills + 1, seen.time
            self.cluster.kill([seen.desired.assignment["count.0"].partition("#")[0]])
            self.cluster.add_node()

    def over(self, state: RunState, actions: list[dict[str, Any]]) -> bool:
        return self.kills == 2 and self._over(state, actions)

    def _over(self, state: RunState, actions: list[dict[str, Any]]) -> bool:
        """Whether what was killed last is made good."""
        noticed = state.observation.time > self._killed_at + scenario.NOTICED_S
        return noticed and scenario.quiet_again([])(state, actions)


def promotions(result: RunResult, partition: str) -> int:
    """How often the partition went on where its standby was."""
    lines = [str(line) for line in result.incident["timeline"] if line["what"] == "promoted"]
    return sum(f"{partition} to " in line for line in lines)


@pytest.mark.parametrize(
    ("text", "another_is_lost"),
    [
        pytest.param(WITH_STANDBYS, False, id="active"),
        pytest.param(PASSIVE, True, id="passive, while another node is lost"),
    ],
)
def test_before_a_node_goes_its_partitions_go_on_where_their_standbys_are(
    large_nodes: EmbeddedCluster, tmp_path: Path, text: str, another_is_lost: bool
) -> None:
    """A notice comes, and the node is killed when its partition goes on elsewhere.  What has no standby there is an ordinary
    loss, and what was promoted is not among it."""
    resource = without_end(text, tmp_path)
    when: dict[str, Any] = {"on": "incident"} if another_is_lost else {"on": "checkpoint"}
    faults = [{**when, "notice": ["@count.0"], "for": f"{NOTICE_S}s"}]
    if another_is_lost:
        faults.append({"on": "incident", "add": 1})
    seen = Seen("count.0", large_nodes, ["another", "former"] if another_is_lost else ["former"])
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, seen, until=seen.over)
    assert_exactly_once(result, resource, tmp_path)
    assert len(seen.at) == 2 and seen.at[1] in seen.standby_at, "it was moved elsewhere, or more than once"
    promoted = "event=standby-promoted partition=count.0 "
    assert promoted in log_of(result, "driver"), "it was moved by a checkpoint"
    assert decided(result)[0] == "moved", "a checkpoint was waited for before the standby was promoted"
    incidents = result.incident["incidents"]
    later = [str(line) for line in result.incident["timeline"] if line["what"] == "promoted"]
    of_it = [line for line in later if "count.0 to " in line]
    assert len(of_it) == another_is_lost, "it was promoted by the loss"
    assert all("before their nodes go: " in line for line in of_it)
    plans = [plan for incident in incidents for plan in incident["plans"]]
    assert not any("count.0" in plan["added"] for plan in plans)
    if another_is_lost:
        assert incidents[0]["plans"], "all that was lost before was promoted"
        assert not any(plan["rollback"] for plan in plans), "everything went back"


def test_a_partition_that_is_lost_with_its_standby_comes_from_the_checkpoint(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    resource = without_end(WITH_STANDBYS, tmp_path)
    seen, faults = Seen("count.0", large_nodes, ["both"]), [{"on": "incident", "add": 1}]
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, seen, until=seen.over)
    assert_exactly_once(result, resource, tmp_path)
    assert seen.killed, "its standby was never at work behind a checkpoint"
    first = result.incident["incidents"][0]
    lost = {one["node"].partition("#")[0] for one in first["lost_nodes"]}
    assert lost == set(seen.killed)
    assert any("count.0" in plan["added"] for plan in first["plans"]), "it was not restored by a plan"
    assert not any(plan["rollback"] for plan in first["plans"]), "everything went back"
    assert "event=standby-promoted partition=count.0 " not in log_of(result, "driver")


def test_a_driver_that_ends_while_a_standby_is_promoted_leaves_no_half_of_it(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    """The next driver finds a partition on a node on which it never was, and begins with the checkpoint."""
    resource = without_end(PASSIVE, tmp_path)
    faults = [{"on": "checkpoint", "kill": ["@count.0"]}, {"on": "incident", "crash": "driver"}]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, until=over)
    assert_exactly_once(result, resource, tmp_path)
    assert result.record["restarts"]["driver"] == 1
    plans = [plan for incident in result.incident["incidents"] for plan in incident["plans"]]
    assert any("count.0" in plan["added"] for plan in plans), "it was not restored by a plan"


def test_a_partition_in_a_cycle_goes_on_where_its_standby_is(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    """Rows go round all the time: what the standby reads is made of what its partition gave one batch before."""
    cycle: dict[str, Any] = {}
    for name in ("smooth", "decay"):
        cycle |= {
            f"operators[{name}].availability": "passive-standby",
            f"operators[{name}].standby": {"every": 3},
        }
    changes = at_pace("200ms", 400, 120, 15) | {"nodes.count": 4} | cycle
    resource = scenario.without_end(override(load_topology("examples/feedback.yaml"), changes), tmp_path)
    faults = [{"on": "checkpoint", "kill": ["@smooth.0"]}]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, until=over, in_time=True)
    assert_exactly_once(result, resource, tmp_path)
    promoted = [str(line) for line in result.incident["timeline"] if line["what"] == "promoted"]
    assert any("smooth.0 to " in line for line in promoted), "it was restored from the checkpoint"
    (first, *_) = result.incident["incidents"]
    assert not any(plan["rollback"] for plan in first["plans"]), "everything went back"


def test_of_what_is_drawn_anew_each_batch_is_told_in_one_version(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    """The node of the partition that draws is killed when it has shown some batches, and drawn more than its standby has."""
    resource, out = without_end(TOLD, tmp_path), tmp_path / "out"
    tail = Tail(out / "sink", large_nodes)
    result = scenario.run(resource, large_nodes, out, [], tail, until=tail.is_over)
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {out / 'logs'}"
    assert tail.killed, "it never had a standby behind a checkpoint that had shown something"
    promoted = [str(line) for line in result.incident["timeline"] if line["what"] == "promoted"]
    assert any("told.0 to " in line for line in promoted), "it did not go on where its standby was"
    assert "event=standby-promoted partition=told.0 " in log_of(result, "driver")
    plans = [plan for incident in result.incident["incidents"] for plan in incident["plans"]]
    assert not any(plan["rollback"] or "told.0" in plan["added"] for plan in plans)
    assert len(tail.generations) == 1, "everything went back"
    changed = [str(path) for path, rows in tail.read.items() if path.read_bytes() != rows]
    assert not changed, "what was shown is shown in another version"
    last = max(CheckpointStore(str(out / "checkpoints")).positions())
    told, left, right = (rows_of(out / "sink" / name / "0", last) for name in ("told", "left", "right"))
    own = 0
    for row, batch in zip(told, left, strict=True):
        own += row["toss"]
        assert row["own"] == own, "some of what it has drawn is not shown"
        assert batch == {**row, "total": own}, "its readers were told something else"
    assert left == right
    assert not tail.early


def rows_of(folder: Path, last: int) -> list[dict[str, Any]]:
    """The rows of an output of which each batch up to `last` is there, once, with one row."""
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"batch-{batch:08d}.jsonl" for batch in range(1, last + 1)]
    rows = [file.read_text().splitlines() for file in files]
    assert {len(batch) for batch in rows} == {1}
    return [json.loads(row) for [row] in rows]


class Tail:
    """Reads outputs while they are written.  Kills the node of `told.0` when that is ahead of its standby."""

    def __init__(self, sink: Path, cluster: EmbeddedCluster) -> None:
        self.sink, self.cluster = sink, cluster
        self.read: dict[Path, bytes] = {}
        """What each file had when it was seen first."""
        self.early: list[str] = []
        """Readers that had more than the standby."""
        self.killed: float | None = None
        """When the node was killed."""
        self.generations: set[int] = set()
        """Which there were since then: another one takes everything back."""

    def __call__(self, state: RunState, _: object) -> None:
        for path in self.sink.glob("*/*/batch-*"):
            self.read.setdefault(path, path.read_bytes())
        desired, progress = state.observation.desired, state.observation.progress
        if desired is None or progress is None:
            return
        if self.killed is not None:
            self.generations.add(desired.generation)
        if (standby := progress.standbys.get("told.0")) is None:
            return
        self.early += [p for p in ("left.0", "right.0") if progress.positions.get(p, -1) > standby]
        has_shown = len(list(self.sink.glob("told/0/batch-*"))) >= 10
        is_ready = standby >= max(state.observation.checkpoints, default=0)
        if self.killed is None and has_shown and is_ready and progress.positions.get("told.0", -1) > standby:
            self.killed = state.observation.time
            self.generations.add(desired.generation)
            self.cluster.kill([desired.assignment["told.0"].partition("#")[0]])

    def is_over(self, state: RunState, actions: list[dict[str, Any]]) -> bool:
        """Whether the incident that the kill has opened is closed."""
        noticed = self.killed is not None and state.observation.time > self.killed + scenario.NOTICED_S
        return noticed and scenario.quiet_again([])(state, actions)


def without_end(text: str, folder: Path) -> StreamTopology:
    """At a pace that two cores can follow, until the run has seen what it waits for."""
    return scenario.without_end(load_text(text, changes=at_pace("200ms", 400, 120, 15)), folder)


def assert_exactly_once(result: RunResult, resource: StreamTopology, folder: Path) -> None:
    """The verdict; how many batches there are is known behind the run alone."""
    scenario.assert_exactly_once(result, scenario.write_expected(resource, folder / "expected"))


class Racks:
    """In which racks partitions and their standbys are until a node is killed."""

    def __init__(self) -> None:
        self.seen: dict[str, set[tuple[str, str]]] = {}

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        desired, nodes = state.observation.desired, state.observation.nodes
        if desired is None or any(action["action"] in BREAKS for action in actions):
            return
        for partition, node in desired.standbys.items():
            here, there = nodes.get(desired.assignment[partition]), nodes.get(node)
            if here is not None and there is not None:
                pair = here.labels[scenario.RACK], there.labels[scenario.RACK]
                self.seen.setdefault(partition, set()).add(pair)


class Seen:
    """Where a partition and its standby are seen to be.  Kills nodes one after the other, when it is time: as soon as the
    standby is at work behind a checkpoint those of `both`, or `another`, which has what has no standby; and the `former`
    one of the partition, when it goes on where its standby was."""

    def __init__(self, partition: str, on: EmbeddedCluster, kills: Sequence[Victims]) -> None:
        self.partition, self.cluster = partition, on
        self.at: list[str] = []
        """Its nodes, in the order in which it was on them."""
        self.standby_at: list[str] = []
        self.killed: list[str] = []
        self._kills, self._killed_at = [*kills], 0.0
        self._moved_at: int | None = None

    def __call__(self, state: RunState, _: object) -> None:
        desired, progress = state.observation.desired, state.observation.progress
        if desired is None or progress is None:
            return
        here, standby = desired.assignment.get(self.partition), desired.standbys.get(self.partition)
        for node, known in ((here, self.at), (standby, self.standby_at)):
            if node is not None and known[-1:] != [node]:
                known.append(node)
        if self._moved_at is None and len(self.at) == 2:
            self._moved_at = progress.horizon
        if self._kills and (nodes := self._now(self._kills[0], state.observation, desired, progress)):
            names = [node.partition("#")[0] for node in nodes]
            self._kills.pop(0)
            self.cluster.kill(names)
            self.killed += names
            self._killed_at = state.observation.time

    def _now(self, victims: Victims, seen: Observation, desired: Desired, progress: Progress) -> list[str]:
        """Nodes that are to be killed at this moment."""
        if victims == "former":
            goes_on = progress.seq >= desired.seq and self._moved_at is not None
            there = goes_on and progress.positions.get(self.partition, 0) > (self._moved_at or 0)
            return self.at[:1] if there else []
        here, standby = desired.assignment.get(self.partition), desired.standbys.get(self.partition)
        behind = progress.standbys.get(self.partition, -1) > max(seen.checkpoints, default=0) > 0
        if not behind or here is None or standby is None:
            return []
        if victims == "both":
            return [here, standby]
        alone = [n for p, n in desired.assignment.items() if p not in desired.standbys]
        return [max(sorted({*alone} - {here, standby}), key=alone.count)]

    def over(self, state: RunState, actions: list[dict[str, Any]]) -> bool:
        """Whether all is killed that is to be, its loss was noticed, and nothing is open any more."""
        noticed = not self._kills and state.observation.time > self._killed_at + scenario.NOTICED_S
        return noticed and scenario.quiet_again([])(state, actions)


def log_of(result: RunResult, process: str) -> str:
    """What a process has logged."""
    return (result.out / "logs" / f"{process}.log").read_text(errors="replace")


def decided(result: RunResult) -> list[str]:
    """Rules by which the coordinator has moved partitions, in order."""
    found = re.findall(r"event=decided rule=(\S+)", log_of(result, "coordinator"))
    return [rule for rule in found if rule in ("moved", "move-prepared", "moves-over")]
