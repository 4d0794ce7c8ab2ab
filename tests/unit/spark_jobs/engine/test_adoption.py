"""Drivers that end anywhere, and a next one that goes on with what lives: the output stays, and nobody who lives begins
anew.  Real engines and hosts; who decides after the adoption is played here as the coordinator does it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.adoption import SurveyError, adopt
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.errors import StoreError, SupersededError
from reprise.spark_jobs.state import ledger as ledger_module
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_scope import BATCHES, installed
from tools.testbed.local_engine import World, tick

pytestmark = pytest.mark.usefixtures("exchange")

NODES = ("a", "b", "c", "d")


def resource_of(text: str, **recovery: str) -> StreamTopology:
    changes: dict[str, object] = {f"recovery.{name}": value for name, value in recovery.items()}
    source = {"sources[tweets].with.batches": BATCHES, "recovery.driverGrace": "60s"}
    return override(load_text(text), {**source, **changes})


def begun(resource: StreamTopology, folder: Path) -> World:
    """At work on four nodes, as by the word of a coordinator that knows the driver by its epoch."""
    world = World(resource, folder, "w")
    world.nodes.start(*NODES)
    decide(world, 1, 0, world.spread(*NODES))
    return world


def in_the_middle(text: str, folder: Path) -> World:
    """The same, when checkpoint 10 is complete."""
    world = begun(resource_of(text), folder)
    world.run(lambda e: e.punctuations.newest >= 10)
    return world


@pytest.fixture
def world(text: str, tmp_path: Path) -> World:
    return in_the_middle(text, tmp_path)


def decide(
    world: World, generation: int, checkpoint: int, assignment: dict[str, str], retain: bool = False
) -> None:
    """What a coordinator would want next of the driver that is there."""
    engine = world.engine
    whole = len(assignment) == len(world.topology.partitions)
    seq, driver = engine.desired.seq + 1, str(engine.epoch)
    engine.want(EngineSpec(seq, generation, checkpoint, assignment, retain, whole, driver=driver))


def dies(world: World, job: int, stage: int, slot: int) -> None:
    """The driver ends at a stage of a job, when so many of its tasks have been carried out."""

    def interrupt(now: int, at: int, task: int) -> None:
        if (now, at, task) >= (job, stage, slot):
            raise ChainError("the driver is gone")

    world.nodes.interrupt = interrupt
    while world.engine.jobs < job:
        tick(world)
    world.nodes.interrupt = lambda *_: None


def next_driver(world: World) -> EngineSpec:
    """Another driver has begun; what was desired of the one before."""
    before = world.engine.desired
    world.driver()
    world.engine.begin(world.engine.punctuations.newest)
    return before


def follows(world: World) -> str:
    """Another driver has begun and adopts what lives; why it does not."""
    desired = next_driver(world)
    return adopt(world.engine, desired, world.nodes.living())


def goes_on(world: World, spare: str = "") -> None:
    """The coordinator's part: what lives stays, the rest is restored on the node `spare` from the newest checkpoint; where
    somebody asks for output that is gone, everything goes back."""
    engine, newest = world.engine, world.engine.punctuations.newest
    lives = dict(engine.desired.assignment)
    decide(
        world,
        engine.desired.generation,
        newest,
        {**dict.fromkeys(world.topology.partitions, spare), **lives},
        True,
    )
    world.run(lambda e: bool(e.not_kept) or (not e.installing and e.punctuations.newest > newest) or e.done)
    if engine.not_kept:
        newest = engine.punctuations.newest
        decide(world, engine.desired.generation + 1, newest, dict(engine.desired.assignment), True)
        world.run(lambda e: not e.installing and e.punctuations.newest > newest)
    decide(world, engine.desired.generation, engine.punctuations.newest, dict(engine.desired.assignment))


@pytest.mark.wide
@pytest.mark.parametrize(("job", "stage", "slot"), [(9, 0, 0), (9, 0, 2), (9, 1, 3), (9, 2, 1), (10, 0, 0)])
@pytest.mark.usefixtures("small_windows")
def test_wherever_a_driver_ends_all_that_lives_goes_on_as_it_was(
    world: World, expected: dict[str, bytes], job: int, stage: int, slot: int
) -> None:
    dies(world, world.engine.jobs + job, stage, slot)
    before, positions = installed(world), dict(world.engine.positions)
    newest = world.engine.punctuations.newest
    released = max(h.command.horizon for h in world.nodes.hosts.values() if h.command is not None)
    assert follows(world) == ""
    engine = world.engine
    hosts = world.nodes.hosts.values()
    assert engine.positions == {p: r.settled for host in hosts for p, r in host.runtimes.items()}
    assert engine.positions.keys() == world.topology.partitions.keys()
    assert engine.horizon == released, "a punctuation before that would be one that somebody has passed"
    assert all(k >= positions[p] for p, k in engine.positions.items())
    assert max(engine.positions.values()) > newest, "it would have been done again"
    assert engine.progress.adopted == {p: engine.desired.assignment[p] for p in engine.positions}
    assert engine.progress.positions == engine.positions
    files = engine.restore_point.manifest(newest).files
    assert engine.state_bytes == {p: files[p].state_bytes if p in files else 0 for p in engine.positions}
    assert any(engine.state_bytes.values())
    goes_on(world)
    assert not engine.progress.adopted, "somebody has decided for this driver"
    world.run(lambda e: e.done)
    assert installed(world) == before
    assert engine.figures.states_here == engine.figures.states_there == 0
    assert world.output() == expected


@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.usefixtures("small_windows")
def test_with_nodes_that_are_lost_with_the_driver_only_what_was_there_is_restored(
    world: World, expected: dict[str, bytes], gone: int
) -> None:
    dies(world, world.engine.jobs + 9, 1, 2)
    lost = random.Random(gone).sample(NODES, gone)
    world.nodes.lose(*lost)
    before = installed(world)
    assert follows(world) == ""
    assert world.engine.positions.keys() == before.keys()
    world.nodes.start("e")
    goes_on(world, "e")
    world.run(lambda e: e.done)
    assert {p: i for p, i in installed(world).items() if p in before} == before
    assert world.output() == expected


@pytest.mark.usefixtures("small_windows")
def test_a_host_that_is_killed_with_the_driver_has_nothing_on_the_node_that_lives(
    world: World, expected: dict[str, bytes]
) -> None:
    dies(world, world.engine.jobs + 9, 1, 2)
    world.nodes.lose("c")
    before = installed(world)
    world.nodes.start("c")
    assert follows(world) == ""
    assert world.engine.installation == before
    goes_on(world, "c")
    world.run(lambda e: e.done)
    assert installed(world).items() >= before.items()
    assert world.output() == expected


@pytest.mark.parametrize("lost", [(), ("c",)], ids=["all-live", "a-node-is-lost"])
@pytest.mark.usefixtures("small_windows")
def test_who_went_back_behind_a_damaged_checkpoint_goes_on_though_the_next_driver_does_not_know(
    text: str, expected: dict[str, bytes], tmp_path: Path, lost: tuple[str, ...]
) -> None:
    world = begun(resource_of(text), tmp_path)
    world.run(lambda e: e.punctuations.newest >= 20)
    engine = world.engine
    newest = engine.punctuations.newest
    engine.restore_point.condemn(newest)
    decide(world, 2, engine.punctuations.newest, dict(engine.desired.assignment), True)
    world.run(lambda e: not e.installing and min(e.positions.values()) >= newest - 7)
    dies(world, engine.jobs + 1, 0, 0)
    world.nodes.lose(*lost)
    before = installed(world)
    assert follows(world) == ""
    assert min(world.engine.positions.values()) < world.engine.punctuations.newest == newest
    assert world.engine.installation == before
    world.nodes.start("e")
    goes_on(world, "e")
    world.run(lambda e: e.done)
    assert world.output() == expected


@pytest.mark.usefixtures("small_windows")
def test_a_driver_that_ends_at_once_leaves_everything_for_the_next(
    world: World, expected: dict[str, bytes]
) -> None:
    """After the survey alone, after a job, and before anybody has decided for it."""
    before = installed(world)
    for jobs in (0, 1, 0, 2):
        assert follows(world) == ""
        tick(world, jobs)
    goes_on(world)
    world.run(lambda e: e.done)
    assert installed(world) == before
    assert world.output() == expected


@pytest.mark.usefixtures("small_windows")
def test_a_survey_that_does_not_reach_all_is_asked_again_without_who_is_gone(
    world: World, expected: dict[str, bytes]
) -> None:
    desired = next_driver(world)
    before = installed(world)

    def interrupt(_job: int, _stage: int, slot: int) -> None:
        if slot == 2:
            raise ChainError("no answer")

    world.nodes.interrupt = interrupt
    with pytest.raises(SurveyError, match="no answer"):
        adopt(world.engine, desired, world.nodes.living())
    assert not world.engine.positions
    world.nodes.interrupt = lambda *_: None
    world.nodes.lose("c")
    assert adopt(world.engine, desired, world.nodes.living()) == ""
    world.nodes.start("e")
    goes_on(world, "e")
    world.run(lambda e: e.done)
    assert {p: i for p, i in installed(world).items() if before[p] == i} == {
        p: i for p, i in before.items() if desired.assignment[p] != "c"
    }
    assert world.output() == expected


def stale(world: World, engine: Engine) -> Callable[[], None]:
    """The driver before, which still talks to the same hosts."""

    def talks() -> None:
        failures = engine.failures
        engine.tick(world.nodes.living(), threading.Event())
        assert engine.failures == failures + 1, "each of its jobs is refused"
        assert "refused" in " ".join(engine.problems) or engine.failures

    return talks


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # nobody else moves hosts
@pytest.mark.usefixtures("small_windows")
def test_hosts_that_have_answered_the_next_driver_refuse_the_one_before(
    text: str, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # all ranges are on record: where time has passed, a next block would meet the later claim before a host is asked
    monkeypatch.setattr(ledger_module, "AHEAD", 1000)
    world = in_the_middle(text, tmp_path)
    old = world.engine
    desired = next_driver(world)
    old.tick(world.nodes.living(), threading.Event())
    assert old.failures == 0, "before the survey it is the only one that hosts know"
    assert adopt(world.engine, desired, world.nodes.living()) == ""
    before = installed(world)
    talks = stale(world, old)
    for _ in range(6):
        positions = {p: r.position for h in world.nodes.hosts.values() for p, r in h.runtimes.items()}
        talks()
        now = {p: r.position for h in world.nodes.hosts.values() for p, r in h.runtimes.items()}
        assert now == positions
        tick(world)
    goes_on(world)
    talks()
    world.run(lambda e: e.done)
    assert installed(world) == before
    assert world.output() == expected


@pytest.mark.usefixtures("small_windows")
def test_a_host_that_was_not_surveyed_drops_what_it_has_at_the_first_order(tmp_path: Path) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    desired = next_driver(world)
    living = {n: h for n, h in world.nodes.living().items() if n != "d"}
    assert adopt(world.engine, desired, living) == ""
    on_d = {p for p, n in desired.assignment.items() if n == "d"}
    assert on_d and world.engine.positions.keys() == desired.assignment.keys() - on_d
    runtimes = dict(world.nodes.hosts["d"].runtimes)
    goes_on(world, "d")
    now = world.nodes.hosts["d"].runtimes
    assert runtimes.keys() == now.keys() and all(now[p] is not r for p, r in runtimes.items())


@pytest.mark.usefixtures("small_windows")
def test_a_store_that_does_not_answer_keeps_nobody_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    desired = next_driver(world)

    def away(*_: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(CheckpointStore, "manifest", away)
    assert adopt(world.engine, desired, world.nodes.living()) == ""
    assert "sizes of states are shown as 0 until they are stored again: away" in world.engine.problems
    assert world.engine.positions.keys() == desired.assignment.keys()


def refused(world: World, change: Callable[[EngineSpec], EngineSpec] = lambda desired: desired) -> str:
    """Why nothing is adopted; then the driver has changed nothing."""
    desired = change(next_driver(world))
    reason = adopt(world.engine, desired, world.nodes.living())
    assert reason and not world.engine.positions and not world.engine.desired.assignment
    return reason


def elsewhere(desired: EngineSpec) -> EngineSpec:
    turned = dict(zip("abcd", "bcda", strict=True))
    return replace(desired, assignment={p: turned[n] for p, n in desired.assignment.items()})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda desired: replace(desired, assignment={"top.0": "x"}), "no node that had partitions is there"),
        (elsewhere, "is not at work on"),
        # the last driver has had other hosts, and an earlier one has left these long ago
        (lambda desired: replace(desired, driver="7"), "has not obeyed the last driver"),
    ],
    ids=["no-node", "elsewhere", "other-hosts"],
)
def test_what_does_not_fit_the_last_desired_state_is_left(
    tmp_path: Path, change: Callable[[EngineSpec], EngineSpec], reason: str
) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    assert reason in refused(world, change)


@pytest.mark.parametrize("surveyed", [True, False])
def test_states_that_hosts_have_read_for_the_driver_before_are_not_counted_again(
    tmp_path: Path, surveyed: bool
) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    decide(world, 2, 10, world.spread(*NODES))
    world.run(lambda e: not e.installing)
    read = world.engine.figures.states_here + world.engine.figures.states_there
    assert read
    if surveyed:
        refused(world, elsewhere)
    else:
        next_driver(world)
    decide(world, 3, 10, world.spread(*NODES))
    world.run(lambda e: not e.installing and bool(e.positions))
    assert world.engine.figures.states_here + world.engine.figures.states_there == read


def test_hosts_of_another_resource_have_nothing_for_this_one(tmp_path: Path) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    world.resource = resource_of(DIAMOND, window="90s")
    assert "it has partitions of another resource" in refused(world)
    assert not installed(world)


def test_hosts_of_another_stream_have_nothing_for_this_one(tmp_path: Path) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    world.checkpoints = tmp_path / "another"
    world.checkpoints.mkdir()
    assert "it has partitions of another stream" in refused(world)


@pytest.mark.usefixtures("small_windows")
def test_hosts_that_are_further_than_the_records_of_the_stream_are_not_believed(tmp_path: Path) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    desired = next_driver(world)
    world.engine.ledger.written = 3
    assert "on record up to batch 3 only" in adopt(world.engine, desired, world.nodes.living())
    assert not world.engine.positions


def test_who_is_at_the_end_of_the_stream_would_store_nothing_more(tmp_path: Path) -> None:
    world = begun(resource_of(DIAMOND), tmp_path)
    final = BATCHES + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "complete_checkpoints", lambda _: None)
        world.run(lambda e: e.final is not None and min(e.positions.values()) == final)
    assert "the stream has ended" in refused(world)
    decide(world, 2, world.engine.punctuations.newest, world.spread(*NODES))
    world.run(lambda e: e.done)


@pytest.mark.usefixtures("small_windows")
def test_a_partition_that_was_only_being_installed_is_left(tmp_path: Path) -> None:
    world = in_the_middle(DIAMOND, tmp_path)
    world.nodes.lose("d")
    tick(world)
    world.nodes.start("e")
    lost = {p for p, n in world.engine.desired.assignment.items() if n == "d"}
    moved = {p: "e" if p in lost else n for p, n in world.engine.desired.assignment.items()}
    newest = world.engine.punctuations.newest
    decide(world, 1, newest, moved, True)
    world.nodes.patient = False
    dies(world, world.engine.jobs + 1, 1, 0)
    assert follows(world) == ""
    assert world.engine.positions.keys().isdisjoint(
        p for p in lost if p not in world.nodes.hosts["e"].runtimes
    )


KINDS = {
    "arrays": {},
    "pages, stored by the next driver against files of the one before": {
        "checkpoint.state": "paged",
        "checkpoint.keep": 1,
    },
}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [(kind, seed) for kind, many in zip(KINDS, (25, 5), strict=True) for seed in range(many)],
)
@pytest.mark.usefixtures("small_windows")
def test_random_ends_of_drivers_and_nodes(
    text: str, expected: dict[str, bytes], tmp_path: Path, kind: str, seed: int
) -> None:
    """Some drivers, each of which ends somewhere, some with nodes, and some of which the one before outlives."""
    dice = random.Random(seed)
    resource = resource_of(text, **dice.choice([{}, {"bufferMemory": "12Ki"}, {"scope": "global"}]))
    world = begun(override(resource, KINDS[kind]), tmp_path)
    olds: list[Engine] = []
    for number in range(dice.randint(1, 4)):
        tick(world, dice.randint(1, 6))
        if world.engine.done:
            break
        dies(world, world.engine.jobs + dice.randint(1, 4), dice.randint(0, 2), dice.randint(0, 3))
        lost = dice.sample(sorted(world.nodes.hosts), dice.choice([0, 0, 1, 2]))
        world.nodes.lose(*lost)
        olds.append(world.engine)
        before, generation = installed(world), world.engine.desired.generation
        reason = follows(world)
        spare = f"s{number}"
        world.nodes.start(spare)
        if dice.random() < 0.3:
            with suppress(
                SupersededError
            ):  # it may look for another batch, and find that it is not the newest
                dice.choice(olds).tick(world.nodes.living(), threading.Event())
        if reason:
            assert "the stream has ended" in reason or "nothing is at work" in reason
            newest = world.engine.punctuations.newest
            decide(world, generation + 1, newest, world.spread(*sorted(world.nodes.hosts)))
        else:
            assert world.engine.installation.items() <= before.items()
            goes_on(world, spare)
    world.run(lambda e: e.done)
    assert world.output() == expected
