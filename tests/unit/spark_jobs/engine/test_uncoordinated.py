"""Partitions that store themselves by their own clocks: whatever is lost and when, no byte of the output changes, and who
lives goes on."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.errors import CheckpointError, StoreError
from reprise.spark_jobs.node import host as host_module
from reprise.spark_jobs.state.snapshot import Snapshot
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.engine_worlds import all_anew, begun, fault_free
from tests.support.losses import lose_a_node_or_everything, lose_at_any_stage
from tests.support.seeds import soak_seeds
from tests.unit.spark_jobs.engine import test_recovery
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("lines_at_once", "no_waiting")]

FEEDBACK = Path("examples/feedback.yaml")
BATCHES = 40


def resource_of(text: str, log: str, **changes: object) -> StreamTopology:
    """`log`: of partitions with own clocks; `induced`: with communication-induced checkpoints; empty: coordinated ones."""
    induced = log == "induced"
    protocol = "communication-induced" if induced else "uncoordinated"
    checkpoint = (
        {"checkpoint.protocol": protocol, "checkpoint.log": "checkpointed" if induced else log} if log else {}
    )
    return override(load_text(text), {"sources[tweets].with.batches": BATCHES, **checkpoint, **changes})


@pytest.fixture(scope="module", params=["diamond", "feedback"])
def text(request: pytest.FixtureRequest) -> str:
    found = DIAMOND if request.param == "diamond" else FEEDBACK.read_text()
    return found.replace("everyBatches: 10", "everyBatches: 6")


@pytest.fixture(params=["memory", "checkpointed"])
def log(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "checkpointed", "induced"])
def own_clocks(request: pytest.FixtureRequest) -> str:
    """The same, and with communication-induced checkpoints."""
    return str(request.param)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of these sizes are all installed within a stage."""
    monkeypatch.setattr(host_module, "JOIN_S", 10.0)


@pytest.fixture(scope="module")
def expected(text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """With coordinated checkpoints and no failure."""
    return fault_free(begun(resource_of(text, ""), tmp_path_factory.mktemp("fault-free")))


@pytest.fixture
def world(text: str, own_clocks: str, tmp_path: Path) -> World:
    """In the middle of the stream."""
    world = begun(resource_of(text, own_clocks), tmp_path)
    in_the_middle(world)
    return world


def installed(world: World) -> dict[str, str]:
    return {p: i for host in world.nodes.hosts.values() for p, i in host.installed.items()}


def instead(world: World, node: str) -> dict[str, str]:
    """What is not on a living node, on this one."""
    known = dict.fromkeys(world.topology.order, node)
    return known | {p: n for p, n in world.engine.desired.assignment.items() if n in world.nodes.hosts}


def restore(world: World, node: str, generation: int | None = None) -> None:
    """The coordinator's plan after a loss: what is lost comes back on this node, and nobody else is named."""
    desired = world.engine.desired
    again = desired.generation if generation is None else generation
    world.want(again, world.engine.punctuations.newest, instead(world, node), retain=True)


def in_the_middle(world: World) -> None:
    """With a line on record, and others that were stored since."""
    world.run(lambda e: e.punctuations.newest > 4 and past(14)(e))


def to_the_end(world: World) -> None:
    desired = world.engine.desired
    world.want(desired.generation, world.engine.punctuations.newest, desired.assignment)
    world.run(lambda e: e.done)


def test_who_is_lost_goes_back_to_its_own_snapshot_and_nobody_else_does(
    world: World, expected: dict[str, bytes]
) -> None:
    assignment = dict(world.engine.desired.assignment)
    lost = next(p for p in world.topology.order if p.startswith("count"))
    world.want(
        1, world.engine.punctuations.newest, {p: n for p, n in assignment.items() if p != lost}, retain=True
    )
    tick(world, 3)
    newest = world.engine.lines.snapshots[lost][-1].position
    before = installed(world)
    world.want(1, world.engine.punctuations.newest, assignment, retain=True)
    assert world.engine.positions[lost] == newest
    assert world.engine.progress.restored == {lost: newest}
    tick(world, 4)
    assert not world.engine.not_kept
    assert {p: i for p, i in installed(world).items() if p != lost} == before
    to_the_end(world)
    assert world.output() == expected


SEEDS = [*range(4), *soak_seeds(8)]


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_losses_at_any_stage_change_no_byte(
    text: str, own_clocks: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    """One node after the other, also while what the one before had is being restored; senders and receivers alike."""
    dice = random.Random(seed)
    world = begun(resource_of(text, own_clocks), tmp_path)
    tick(world, dice.randint(1, 25))
    for k in range(4):
        lose_at_any_stage(world, dice)
        tick(world, dice.randint(0, 3))
        world.nodes.start(f"new{k}")
        before = installed(world)
        restore(world, f"new{k}")
        tick(world, dice.randint(0, 6))
        assert not world.engine.not_kept
        if own_clocks != "memory" or not k:
            still = {p: i for p, i in installed(world).items() if p in before}
            assert still == before, "nobody who lives goes back"
    to_the_end(world)
    assert world.output() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_losses_failed_jobs_partial_plans_and_new_drivers_change_no_byte(
    text: str, log: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    """With rollbacks of everything, as a coordinator decides them that goes by rounds."""
    test_recovery.test_random_losses(resource_of(text, log), expected, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_driver_goes_on_from_the_line_on_record(
    text: str, log: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    world = begun(resource_of(text, log), tmp_path)
    for _ in range(2):
        tick(world, dice.randint(1, 20))
        recorded = {p: s.position for p, s in world.engine.lines.line.items()}
        all_anew(world, world.epochs + 5, "d", "e")
        assert world.engine.positions == recorded
        tick(world, dice.randint(0, 5))
    to_the_end(world)
    assert world.output() == expected


def test_a_new_driver_brings_queries_back_one_by_one(world: World, expected: dict[str, bytes]) -> None:
    newest = world.engine.punctuations.newest
    world.nodes.lose(*world.nodes.hosts)
    world.nodes.start("d", "e")
    world.driver()
    world.engine.begin(newest)
    order = world.topology.order
    world.want(9, newest, dict.fromkeys(order[::2], "d"), retain=True)
    tick(world, 6)
    world.want(9, newest, {**dict.fromkeys(order, "e"), **dict.fromkeys(order[::2], "d")}, retain=True)
    tick(world, 6)
    assert not world.engine.not_kept
    to_the_end(world)
    assert world.output() == expected


def assert_no_more_is_trimmed_than(world: World, told: dict[str, int]) -> dict[tuple[str, str], int]:
    """Each sender still has what its target needs from there on; the first batch that it has by sender and target."""
    kept = {
        (buffer.source, buffer.target): (buffer.floor, runtime.next_of(buffer.target, told[buffer.target]))
        for host in world.nodes.hosts.values()
        for runtime in host.runtimes.values()
        if not runtime.partition.is_source
        for buffer in runtime.buffers.values()
    }
    assert kept
    assert all(floor <= need for floor, need in kept.values()), kept
    return {edge: floor for edge, (floor, _) in kept.items()}


def test_a_snapshot_that_was_stored_and_not_recorded_counts_for_no_new_driver(
    world: World, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies between the store of a snapshot and its record: nothing was trimmed for it."""
    recorded = {p: s.position for p, s in world.engine.lines.line.items()}

    def refused(*_: object) -> None:
        raise StoreError("the store is away")

    monkeypatch.setattr(world.engine.store, "complete", refused)
    taken = world.engine.lines.taken
    world.run(lambda e: e.lines.taken > taken + 4, limit=60)
    assert "the store is away" in world.engine.problems
    assert {p: s.position for p, s in world.engine.lines.line.items()} == recorded
    assert_no_more_is_trimmed_than(world, recorded)
    all_anew(world, 9, "d", "e")
    assert world.engine.positions == recorded
    to_the_end(world)
    assert world.output() == expected


def test_a_damaged_snapshot_is_passed_over_and_said(world: World, expected: dict[str, bytes]) -> None:
    world.forget()
    known = world.engine.lines.snapshots
    lost = next(p for p in world.topology.order[2:] if known[p][-1].file is not None)
    damaged = known[lost][-1]
    assert damaged.file is not None
    (world.checkpoints / damaged.file.path).write_bytes(b"damaged")
    goes_on_from_the_one_before(world, lost, damaged)
    assert world.output() == expected


def goes_on_from_the_one_before(world: World, lost: str, damaged: Snapshot) -> None:
    """It is lost, and its newest snapshot is damaged.  That is said, and elsewhere it begins at the one before."""
    assignment = dict(world.engine.desired.assignment)
    others = {p: n for p, n in assignment.items() if p != lost}
    world.want(1, 0, others, retain=True)
    tick(world)
    world.want(1, 0, assignment, retain=True)
    world.run(lambda e: lost in e.failed, limit=8)
    assert world.engine.failed[lost].kind is FailureKind.CHECKPOINT
    said = f"{lost}: its snapshot of batch {damaged.position} cannot be used"
    assert any(said in problem for problem in world.engine.problems)
    assert not world.engine.bad_checkpoints
    world.want(1, 0, others, retain=True)
    tick(world)
    elsewhere = next(n for n in world.nodes.hosts if n != assignment[lost])
    world.want(1, 0, {**assignment, lost: elsewhere}, retain=True)
    assert world.engine.positions[lost] < damaged.position
    ends_though_it_was_dropped(world)


def ends_though_it_was_dropped(world: World) -> None:
    """Senders may have dropped what somebody needs who went far back: then a coordinator takes everything back."""
    tick(world, 8)
    if world.engine.not_kept:
        world.want(2, 0, world.engine.desired.assignment, retain=True)
    to_the_end(world)


def test_when_no_line_is_left_the_driver_says_so_and_nothing_changes(tmp_path: Path) -> None:
    world = begun(resource_of(DIAMOND, "memory"), tmp_path)
    in_the_middle(world)
    lines = world.engine.lines
    world.engine.ledger.trimmed = 3
    for partition in world.topology.order:
        lines.snapshots[partition] = ()
    before = world.engine.desired
    with pytest.raises(CheckpointError, match=r"no line of snapshots is valid.*up to batch 3 was given up"):
        world.want(2, 0, before.assignment)
    assert world.engine.desired == before


@pytest.mark.parametrize("where", ["memory", "checkpointed"])
def test_output_dropped_for_want_of_room_takes_back_who_dropped_it(
    text: str, expected: dict[str, bytes], tmp_path: Path, where: str
) -> None:
    resource = resource_of(text, where, **{"recovery.bufferMemory": "6Ki", "recovery.bufferDisk": "0"})
    world = begun(resource, tmp_path)
    world.run(lambda e: past(20)(e) or e.done)
    for k, node in enumerate("ab"):
        world.nodes.lose(node)
        tick(world)
        world.nodes.start(f"new{k}")
        restore(world, f"new{k}")
        for _ in range(6):
            tick(world)
            if world.engine.not_kept:
                restore(world, f"new{k}", world.engine.desired.generation + 1)
    to_the_end(world)
    assert world.output() == expected


def test_old_snapshots_are_removed_and_those_that_a_line_names_are_not(
    text: str, own_clocks: str, tmp_path: Path
) -> None:
    world = begun(resource_of(text, own_clocks), tmp_path)
    lines = world.engine.lines
    while not world.engine.done:
        tick(world)
        there = {str(p.relative_to(world.checkpoints)) for p in world.checkpoints.glob("cp-*/*.state")}
        named = {s.file.path for kept in lines._kept.values() for s in kept.values() if s.file is not None}
        known = {s.file.path for ss in lines.snapshots.values() for s in ss if s.file is not None}
        assert named | known <= there
    assert lines.taken > len(there), "some were removed"
    assert len(world.engine.store.positions()) <= world.resource.checkpoint.keep
    for position in world.engine.store.positions():
        world.engine.store.verify(position)


def test_nobody_who_is_not_in_the_line_loses_its_pace(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job in which there is a batch for it, it applies one, whatever is lost, restored or catches up."""
    side = DIAMOND.replace(
        "    - name: count\n",
        """    - name: other
      class: reprise.spark_jobs.operators:FlatMap
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets}]
      output: {priority: 1}
    - name: count
""",
    )
    world = begun(resource_of(side, log), tmp_path)
    in_the_middle(world)
    needs = world.topology.queries["other.0"].partitions
    keep, lose = dict.fromkeys(needs, "a"), [p for p in world.topology.order if p not in needs]
    world.want(2, world.engine.punctuations.newest, {**keep, **dict.fromkeys(lose, "b")})
    world.run(past(20))
    paces = []
    monkeypatch.setattr(engine_module.Engine, "_due", lambda _: BATCHES)

    def paced(jobs: int) -> None:
        for _ in range(jobs):
            before = world.engine.positions["other.0"]
            tick(world)
            if before < BATCHES - 3:
                paces.append(world.engine.positions["other.0"] - before)

    world.nodes.lose("b")
    tick(world)
    world.want(2, 0, keep, retain=True)
    paced(2)
    world.nodes.start("d")
    restore(world, "d")
    paced(6)
    assert min(paces) >= 1, paces


def test_what_is_trimmed_is_what_nobody_needs_and_no_batch_more(text: str, log: str, tmp_path: Path) -> None:
    world = begun(resource_of(text, log), tmp_path)
    world.run(lambda e: min(s.position for p, s in e.lines.line.items() if p != "parse.0") > 4)
    tick(world)
    told = {p: s.position for p, s in world.engine.lines.line.items()}
    kept = assert_no_more_is_trimmed_than(world, told)
    assert any(floor > 1 for floor in kept.values()), "and something is trimmed"


def test_a_partition_without_state_stores_no_file_where_nothing_of_its_output_is_stored(
    tmp_path: Path,
) -> None:
    world = begun(resource_of(DIAMOND, "memory"), tmp_path)
    in_the_middle(world)
    newest = world.engine.lines.snapshots["parse.0"][-1]
    assert newest.position > 0
    assert newest.file is None
    assert world.engine.lines.snapshots["count.0"][-1].file is not None


def test_a_drain_ends_at_a_line_behind_which_nothing_was_released(
    world: World, expected: dict[str, bytes]
) -> None:
    world.engine.drain.asked = True
    world.run(lambda e: e.drained is not None)
    at = {s.position for s in world.engine.lines.line.values()}
    assert at == {world.engine.drained} == {world.engine.horizon}
    newest = world.engine.punctuations.newest
    world.driver()
    world.engine.begin(newest)
    world.want(9, newest, world.spread("a", "b"), retain=True)
    assert set(world.engine.positions.values()) == {newest}
    to_the_end(world)
    assert world.output() == expected


def test_one_that_is_set_aside_does_not_fill_the_nodes_of_the_others(log: str, tmp_path: Path) -> None:
    small = {"recovery.bufferMemory": "32Ki", "recovery.bufferDisk": "16Ki"}
    resource = override(resource_of(DIAMOND, log, **small), {"sources[tweets].with.batches": 100})
    world = begun(resource, tmp_path)
    in_the_middle(world)
    assignment = world.engine.desired.assignment
    world.want(1, 0, {p: n for p, n in assignment.items() if p not in ("count.0", "top.0")})
    world.run(lambda e: e.final is not None and set(e.positions.values()) == {e.final}, limit=400)


def test_with_one_line_kept_a_new_driver_finds_it(
    text: str, log: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of(text, log, **{"checkpoint.keep": 1}), tmp_path)
    in_the_middle(world)
    assert len(world.engine.store.positions()) == 1
    newest = world.engine.punctuations.newest
    all_anew(world, 9, "d")
    assert min(world.engine.positions.values()) == newest
    to_the_end(world)
    assert world.output() == expected


def test_a_job_that_fails_loses_no_request(text: str, log: str, tmp_path: Path) -> None:
    world = begun(resource_of(text, log), tmp_path)

    def fails(_job: int, stage: int, _slot: int) -> None:
        if stage == 1:
            raise ChainError("power cut")

    world.run(past(1))
    world.nodes.interrupt = fails
    tick(world)
    asked = dict(world.engine.lines.clocks.requests)
    assert asked
    tick(world, 2)
    assert world.engine.lines.clocks.requests == asked
    world.nodes.interrupt = lambda *_: None
    world.run(lambda e: all(e.lines.snapshots[p][-1].position >= k for p, k in asked.items()), limit=60)


def test_a_stream_changes_from_one_protocol_to_the_other_and_back(
    text: str, expected: dict[str, bytes], tmp_path: Path, own_clocks: str
) -> None:
    world = begun(resource_of(text, ""), tmp_path)
    for k, other in enumerate((own_clocks, "", own_clocks)):
        far = past(8 * (k + 1))
        world.run(lambda engine, far=far, k=k: far(engine) and (k > 0 or engine.punctuations.newest > 0))  # type: ignore[misc]
        newest = world.engine.punctuations.newest
        round_of_all = not world.engine.lines.active
        world.resource = resource_of(text, other)
        world.nodes.lose(*world.nodes.hosts)
        world.nodes.start("d", "e")
        world.driver()
        world.engine.begin(newest)
        if k == 0:  # a live source gives up what is stored: there is no beginning to go back to
            assert round_of_all and newest > 0
            world.engine.ledger.trimmed = newest
            world.engine.lines.snapshots.clear()
            world.engine.lines._begun = False
            world.engine.begin(newest)
        world.want(20 + k, newest, world.spread("d", "e"), retain=True)
        if round_of_all:
            assert set(world.engine.positions.values()) == {newest}, "nobody goes back behind the round"
        world.engine.ledger.trimmed = 0
        tick(world, 2)
        world.want(20 + k, newest, world.spread("d", "e"))
    to_the_end(world)
    assert world.output() == expected


COIN = test_recovery.COIN.replace("everyBatches: 10", "everyBatches: 5")


@pytest.mark.parametrize("seed", SEEDS)
def test_output_that_a_replay_could_change_tells_one_story(log: str, tmp_path: Path, seed: int) -> None:
    """What was shown stays as it is, and everything goes back to a line in which nobody has seen what is made anew."""
    dice = random.Random(seed)
    world = begun(override(resource_of(COIN, log), {"sources[tweets].with.batches": 45}), tmp_path)
    shown: dict[str, bytes] = {}
    for k in range(3):
        tick(world, dice.randint(4, 14))
        assert shown.items() <= world.output().items()
        shown = world.output()
        line = world.engine.lines.line
        assert all(int(name[-14:-6]) <= line["total.0"].position for name in shown)
        lose_a_node_or_everything(world, dice)
        world.nodes.start(f"new{k}")
        first, second = (
            (world.topology.order[:2], world.topology.order[2:])
            if dice.random() < 0.5
            else (world.topology.order, [])
        )
        newest = world.engine.punctuations.newest
        world.want(10 + k, newest, dict.fromkeys(first, f"new{k}"), retain=True)
        tick(world, dice.randint(0, 4))
        world.want(10 + k, newest, dict.fromkeys([*first, *second], f"new{k}"), retain=True)
        at = {p: s.position for p, s in world.engine.lines.origins.items()}
        assert at["total.0"] <= at["toss.0"], "it has seen no toss that is made again"
    to_the_end(world)
    after = world.output()
    assert shown.items() <= after.items()
    rows = [json.loads(data) for _, data in sorted(after.items()) if data]
    assert len(after) == world.engine.final
    assert len(rows) > 40
    assert all(b["total"] == a["total"] + b["toss"] for a, b in pairwise(rows))


def test_after_a_damaged_snapshot_no_later_driver_finds_a_line_of_what_is_made_differently_now(
    tmp_path: Path,
) -> None:
    """Operators that are not deterministic: a line of before together with what came after would tell two stories."""
    world = begun(override(resource_of(COIN, "checkpointed"), {"sources[tweets].with.batches": 45}), tmp_path)
    world.run(past(25))
    lines, store = world.engine.lines, world.engine.store
    assert len(lines._kept) > 1
    lines.origins["toss.0"] = lines.line["toss.0"]
    lines.condemn("toss.0")
    world.want(2, 0, world.engine.desired.assignment, retain=True)
    chosen = {p: s.position for p, s in lines.origins.items()}
    left = [store.manifest(name) for name in store.positions()]
    assert all(m.snapshot(p).position <= k for m in left for p, k in chosen.items())
