"""Operators in cycles, and beside them, with standbys of both kinds and upstream backup: whatever is lost, all is shown once
and as `run_local` has it; at most one of two sends, both have the same state, and a checkpoint has what goes round."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.node.state_tables import FEEDBACK
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, expand, load_text
from tests.support.cycles import ROUNDS
from tests.support.engine_worlds import placed
from tests.support.losses import tick_losing
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine import test_standbys as standbys
from tests.unit.spark_jobs.engine import test_upstream_backup as backup
from tests.unit.spark_jobs.engine.test_both_copies_lost import lost_at_random, ready_at, with_mode
from tests.unit.spark_jobs.engine.test_standbys import recover
from tests.unit.spark_jobs.engine.test_upstream_backup import fed, finish, lose, rebuilds, restore
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("few_batches_ahead")]
NODES = ("a", "b", "c", "d")
AT = standbys.AT | {"late.0": "b"}
STANDBYS = {
    "parse.0": "d", "parse.1": "a", "count.0": "a", "count.1": "c", "best.0": "c", "late.0": "a",
}  # fmt: skip
OPERATORS = ("parse", "count", "best", "late")
MODES = ("active-standby", "passive-standby")
WINDOWED = "reprise.controller.simulated_world.operators:Windowed"
IN_THE_CYCLE = {"count.0": "c", "best.0": "d"}


def windows(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Operators that do not depend on all of their input; `best` does not read itself then."""
    found: dict[str, Any] = {"operators[best].inputs": [{"from": "count", "by": ["key"]}]}
    for name, size in sizes.items():
        found |= {f"operators[{name}].class": WINDOWED, f"operators[{name}].with": {"size": size}}
    return found


IN_WINDOWS = windows({"parse": 1, "count": 7, "best": 1, "late": 3})
PAGED = {
    "checkpoint.state": "paged",
    **{f"operators[{n}].class": "reprise.controller.simulated_world.operators:Paged" for n in OPERATORS},
}
WIDE = pytest.mark.wide
CASES = {
    "active": with_mode("active-standby", OPERATORS),
    "passive": with_mode("passive-standby", OPERATORS),
    "pages": with_mode("passive-standby", OPERATORS) | PAGED,
}
in_each_case = pytest.mark.parametrize(
    "kind", [CASES["active"], CASES["passive"], pytest.param(CASES["pages"], marks=WIDE)], ids=CASES
)
in_each_case_at_each_stage = pytest.mark.parametrize(
    ("kind", "stage"),
    [
        pytest.param(changes, stage, id=f"{name}-{stage}", marks=WIDE if name == "pages" else [])
        for name, changes in CASES.items()
        for stage in range(3)
    ],
)


@pytest.fixture(autouse=True)
def twins(monkeypatch: pytest.MonkeyPatch) -> standbys.Watch:
    """H1 and H2 in every job."""
    return standbys.Watch(monkeypatch)


def made(changes: Mapping[str, Any]) -> StreamTopology:
    return load_text(ROUNDS, changes=dict(changes))


def world_of(folder: Path, changes: Mapping[str, Any], standbys: Mapping[str, str] = STANDBYS) -> World:
    return placed(made(changes), folder, AT, standbys)


def definition(resource: StreamTopology) -> dict[str, bytes]:
    """The files of a run in one process, without engine and hosts."""
    found, shown = dict[str, bytes](), expand(resource).outputs
    for number, rows in enumerate(run_local(resource), 1):
        for partition, table in rows.items():
            if partition not in shown:
                continue
            operator, _, index = partition.rpartition(".")
            data = b"" if table is None or not table.num_rows else encoded("jsonl", table)
            found[f"{operator}/{index}/batch-{number:08d}.jsonl"] = data
    return found


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return definition(made({}))


@pytest.fixture(scope="module")
def in_windows() -> dict[str, bytes]:
    return definition(made(IN_WINDOWS))


def loses_at(world: World, stage: int, *nodes: str) -> None:
    """Nodes are lost at a stage of the next job, and the driver has seen it."""
    tick_losing(world, nodes[0], stage, *nodes[1:])
    tick(world, 2)


@pytest.mark.wide
def test_without_a_failure_the_output_is_that_of_the_definition(
    tmp_path: Path, expected: dict[str, bytes], twins: standbys.Watch
) -> None:
    assert len(expected) == 61 * 4
    assert expected["count/0/batch-00000061.jsonl"], "rows go round when the stream has ended"
    world = world_of(tmp_path, CASES["active"])
    finish(world, expected)
    assert twins.compared > 100
    assert world.engine.figures.failed_jobs == 0


@pytest.mark.parametrize("node", NODES)
@in_each_case_at_each_stage
def test_a_node_is_lost_at_any_stage(
    tmp_path: Path, expected: dict[str, bytes], kind: dict[str, Any], node: str, stage: int
) -> None:
    """Whatever has a standby goes on from there; nobody goes back, and only sources are read again from the checkpoint."""
    world = world_of(tmp_path, kind)
    world.run(ready_at(25))
    ready = set(world.engine.progress.standbys)
    loses_at(world, stage, node)
    lost = {p for p, n in AT.items() if n == node}
    assert {p for p, f in world.engine.failed.items() if f.kind is FailureKind.NODE_LOST} == lost
    promoted = recover(world)
    assert promoted == lost & set(world.engine.standbys._promoting) <= lost & ready
    if kind is CASES["active"]:
        assert promoted == lost & STANDBYS.keys()
    finish(world, expected)
    assert world.engine.desired.generation == 1


@in_each_case_at_each_stage
def test_all_of_a_cycle_goes_to_its_standbys_at_once(
    tmp_path: Path, expected: dict[str, bytes], kind: dict[str, Any], stage: int
) -> None:
    """Each is fed what goes round by another one that was promoted with it."""
    world = world_of(tmp_path, kind, {**STANDBYS, "count.1": "a", "best.0": "b"})
    world.run(ready_at(25))
    loses_at(world, stage, *IN_THE_CYCLE.values())
    assert IN_THE_CYCLE.keys() <= world.engine.progress.standbys.keys()
    assert recover(world) == set(IN_THE_CYCLE)
    finish(world, expected)
    assert world.engine.desired.generation == 1


@pytest.mark.parametrize("lost", [("c", "a"), ("d", "c"), ("a", "c", "d")], ids="".join)
@in_each_case_at_each_stage
def test_both_copies_are_lost_and_the_partition_comes_from_its_checkpoint(
    tmp_path: Path, expected: dict[str, bytes], kind: dict[str, Any], lost: Sequence[str], stage: int
) -> None:
    world = world_of(tmp_path, kind)
    world.run(ready_at(25))
    loses_at(world, stage, *lost)
    gone = {p for p, n in STANDBYS.items() if n in lost and AT[p] in lost}
    assert gone
    newest = world.engine.punctuations.newest
    assert not gone & recover(world)
    assert {world.engine.positions[p] for p in gone} == {newest}
    finish(world, expected)
    assert world.engine.desired.generation == 1


@pytest.mark.parametrize("lost", ["", "c", "d", "a"], ids=["nothing", "count", "best", "standby"])
@in_each_case_at_each_stage
def test_partitions_at_work_go_on_where_their_standbys_are(
    tmp_path: Path, expected: dict[str, bytes], kind: dict[str, Any], lost: str, stage: int
) -> None:
    """Before a node goes; and any node may be lost in the middle of the job that promotes."""
    world = world_of(tmp_path, kind)
    world.run(ready_at(25))
    engine = world.engine
    moved = {**AT, "count.0": "a", "best.0": "c"}
    left = {p: n for p, n in STANDBYS.items() if moved[p] != n}
    world.want(1, engine.punctuations.newest, moved, retain=True, standbys=left)
    assert engine.standbys._promoting.keys() == IN_THE_CYCLE.keys()

    tick_losing(world, lost, stage)
    tick(world, 2)
    if lost:
        recover(world)
    finish(world, expected)
    assert engine.desired.generation == 1


def rows(data: bytes) -> Counter[str]:
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in data.splitlines())


@in_each_case
def test_a_checkpoint_that_a_promoted_standby_stores_has_what_goes_round(
    tmp_path: Path, expected: dict[str, bytes], kind: dict[str, Any]
) -> None:
    """At a drain: the standby stands at the last batch already, and stores what its partition sent there."""
    world = world_of(tmp_path, kind)
    world.run(past(15))
    engine = world.engine
    engine.drain.asked = True

    def away(*_: object) -> None:
        raise StoreError("no answer")

    def all_there(e: Engine) -> bool:
        return e.drain.holds(e.horizon, e.punctuations.newest) and set(e.progress.standbys.values()) == {
            e.horizon
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointStore, "complete", away)
        world.run(all_there)
        lose(world, "d")
        assert recover(world) == {"best.0"}
    world.run(lambda e: e.drained is not None)
    last = engine.drained
    assert last is not None
    file = engine.store.manifest(last).snapshots["best.0"].file
    assert file is not None
    found = {n: t for n, t in engine.store.read_state(file).items() if n.startswith(FEEDBACK)}
    stored = {name: rows(encoded("jsonl", table)) for name, table in found.items()}
    shown = rows(expected[f"best/0/batch-{last:08d}.jsonl"])
    assert shown
    assert stored.pop(f"{FEEDBACK}best.0") == shown
    assert sum(stored.values(), Counter()) == shown, "each row to the partition of `count` that has its key"
    assert {n: expected[n] for n in world.output()} == world.output()


@seeds(range(3), range(3, 8), 392)
def test_nodes_are_lost_at_any_moment(tmp_path: Path, expected: dict[str, bytes], seed: int) -> None:
    """Each operator in a way of its own."""
    dice = random.Random(seed)
    modes = {name: dice.choice([*MODES, *MODES, "checkpoint"]) for name in OPERATORS}
    changes = {k: v for name, mode in modes.items() for k, v in with_mode(mode, [name]).items()}
    short = {"recovery.bufferMemory": "8Ki"} if dice.random() < 0.4 else {}
    world = world_of(tmp_path, changes | short, {})
    lost_at_random(world, dice, [p for p in AT if modes.get(p.rpartition(".")[0]) in MODES], expected)


# -- operators that are fed again ----------------------------------------------------------------------------------------

BACKED = with_mode("upstream-backup", OPERATORS) | IN_WINDOWS


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> backup.Watch:
    """What each partition gives, which is compared each time, and what is read."""
    return backup.Watch(monkeypatch)


@pytest.mark.parametrize(("node", "partition"), [("c", "count.0"), ("d", "best.0")])
@pytest.mark.parametrize(
    ("mode", "stage"),
    [*(("upstream-backup", stage) for stage in range(3)),
     *(pytest.param(mode, stage, marks=[] if stage == 1 else WIDE) for mode in MODES for stage in range(3))],
)  # fmt: skip
def test_a_partition_in_a_cycle_is_fed_again_by_what_it_reads(
    tmp_path: Path,
    in_windows: dict[str, bytes],
    watch: backup.Watch,
    mode: str,
    node: str,
    partition: str,
    stage: int,
) -> None:
    """One with standbys where both copies are lost: here no standby is placed at all."""
    world = world_of(tmp_path, with_mode(mode, OPERATORS) | IN_WINDOWS, {})
    world.run(lambda e: past(23)(e) and e.punctuations.newest == 20)
    loses_at(world, stage, node)
    assert set(world.engine.failed) == {partition}
    assert world.engine.progress.backed >= {partition}
    restore(world, "a", "b")
    assert fed(world) == {partition}
    tick(world, 2)
    again = world.nodes.hosts[world.engine.desired.assignment[partition]].runtimes[partition]
    here = {b for buffer in again.buffers.values() for b in buffer.entries if b < buffer.floor}
    assert not here, "what it has not made may be sent to nobody"
    finish(world, in_windows)
    assert partition not in watch.read
    assert world.engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("memory", ["1Mi", "2Ki"])
def test_at_every_moment_what_remains_is_enough_to_rebuild(
    tmp_path: Path, in_windows: dict[str, bytes], watch: backup.Watch, memory: str
) -> None:
    """With little memory no more is kept than that."""
    world = world_of(tmp_path, BACKED | {"recovery.bufferMemory": memory}, {})
    seen = Counter[str]()
    while not past(55)(world.engine):
        tick(world)
        seen.update(rebuilds(world, watch))
    assert seen.keys() == {p for p in AT if not p.startswith("tweets")}
    assert min(seen.values()) > 5
    finish(world, in_windows)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_all_of_a_cycle_is_lost_and_what_went_round_comes_from_the_checkpoint(
    tmp_path: Path, in_windows: dict[str, bytes], watch: backup.Watch, stage: int
) -> None:
    """Nobody has what one of them needs of the other, so at least one is restored."""
    world = world_of(tmp_path, BACKED, {})
    world.run(lambda e: past(23)(e) and e.punctuations.newest == 20)
    loses_at(world, stage, *IN_THE_CYCLE.values())
    assert set(world.engine.failed) == set(IN_THE_CYCLE)
    restore(world, "a", "b")
    assert fed(world) < set(IN_THE_CYCLE)
    finish(world, in_windows)
    assert set(watch.read) == IN_THE_CYCLE.keys() - fed(world)
    assert world.engine.desired.generation == 1


@seeds(range(3), range(3, 8), 392)
def test_nodes_are_lost_at_any_moment_and_fed_again(
    tmp_path: Path, in_windows: dict[str, bytes], watch: backup.Watch, seed: int
) -> None:
    dice = random.Random(seed)
    ways = [*MODES, "upstream-backup", "upstream-backup", "checkpoint"]
    modes = {name: dice.choice(ways) for name in OPERATORS}
    changes = {k: v for name, mode in modes.items() for k, v in with_mode(mode, [name]).items()}
    sizes = {name: dice.choice([1, 2, 5, 13]) for name in OPERATORS}
    short = {"recovery.bufferMemory": "2Ki"} if dice.random() < 0.4 else {}
    world = world_of(tmp_path, changes | windows(sizes) | short, {})
    mine = [p for p in AT if modes.get(p.rpartition(".")[0]) in MODES]
    lost_at_random(world, dice, mine, definition(made(windows(sizes))))


def test_who_reads_over_a_feedback_edge_is_not_fed_without_the_batch_at_which_it_begins(
    tmp_path: Path, watch: backup.Watch
) -> None:
    """Both of a cycle are lost, and of all else that they read what follows batch 19 is kept, behind which both would begin.
    But `count` makes batch 20 of batch 19 of `best`, which that would not make again."""
    sizes = windows({"parse": 1, "count": 19, "best": 19, "late": 3})
    world = world_of(tmp_path, BACKED | sizes, {})
    world.run(lambda e: past(23)(e) and e.punctuations.newest == 20)
    loses_at(world, 1, *IN_THE_CYCLE.values())
    restore(world, "a", "b")
    assert fed(world) == set()
    finish(world, definition(made(sizes)))
    assert set(watch.read) == set(IN_THE_CYCLE)
    assert world.engine.desired.generation == 1, "else all would go back, as what one waits for never comes"
