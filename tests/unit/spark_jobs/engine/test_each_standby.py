"""What holds for standbys of each kind: active ones, and passive ones of states in arrays and in pages, and each beside
another.  Whatever is lost, all is shown once and as without a failure; one of two sends, and both have the same state."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.sinks import FileSink
from tests.support.hashtags import WITH_STANDBYS
from tests.support.losses import (
    FilesAway,
    given,
    gives_more_in_one_job,
    lose_nodes_at_any_moment,
    tick_losing,
)
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine import test_standbys
from tests.unit.spark_jobs.engine.test_passive_standbys import ARRAYS, EVERY, PAGED, copies, ready_at  # noqa: F401
from tests.unit.spark_jobs.engine.test_standbys import (
    AT,
    NODES,
    STANDBYS,
    all_ready,
    back,
    expected,  # noqa: F401 - the output without a failure, which is the same
    finish,
    goes_to_its_standby,
    recover,
    watch,  # noqa: F401 - H1 and H2 in every job
)
from tools.testbed.local_engine import World, past, tick

# ruff: noqa: F811
WIDE = pytest.mark.wide
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("exchange", "few_batches_ahead")]


@dataclass(frozen=True)
class Kind:
    text: str
    at_work: Callable[[int], Callable[[Engine], bool]]
    """When all have come to a batch, and standbys as far as they are expected to be."""
    begins_in: int
    """Jobs in which one that is new is ready."""
    passive: bool = True
    standbys: Mapping[str, str] = field(default_factory=lambda: STANDBYS)

    def begin(self, folder: Path, standbys: Mapping[str, str] = STANDBYS, batch: int = 25) -> World:
        world = test_standbys.world_of(folder, standbys, self.text)
        world.run(self.at_work(batch))
        return world


KINDS = {
    "active": Kind(WITH_STANDBYS, past, 40, passive=False),
    "arrays": Kind(ARRAYS, ready_at, 10),
    "paged": Kind(PAGED, ready_at, 10),
}

COUNT_AT = WITH_STANDBYS.index("    - name: count")
PARSE, REST = WITH_STANDBYS[:COUNT_AT], WITH_STANDBYS[COUNT_AT:]
ACTIVE, BACKUP = "availability: active-standby", "availability: upstream-backup"
PASSIVE = f"availability: passive-standby\n      standby: {{every: {EVERY}}}"
OF_COUNT = {p: n for p, n in STANDBYS.items() if p.startswith("count")}
MIXED = {
    "active, passive": Kind(PARSE + REST.replace(ACTIVE, PASSIVE), ready_at, 10),
    "passive, active": Kind(PARSE.replace(ACTIVE, PASSIVE) + REST, ready_at, 10),
    "backup, active": Kind(PARSE.replace(ACTIVE, BACKUP) + REST, ready_at, 10, standbys=OF_COUNT),
    "backup, passive": Kind(
        PARSE.replace(ACTIVE, BACKUP) + REST.replace(ACTIVE, PASSIVE), ready_at, 10, standbys=OF_COUNT
    ),
}
"""Where `parse` and `count` have different ones, or `parse` is fed again.  Amnesia beside them:
`simulated_world/test_mixed.py`."""


def of_each(kinds: Mapping[str, Kind], *always: str) -> pytest.MarkDecorator:
    """These kinds; `always`: those of `make test`."""
    marked = [pytest.param(k, id=name, marks=[] if name in always else WIDE) for name, k in kinds.items()]
    return pytest.mark.parametrize("kind", marked)


of_each_kind = of_each(KINDS, "active", "arrays")
of_two_kinds = of_each({name: KINDS[name] for name in ("active", "arrays")}, "active", "arrays")
Expected = dict[str, bytes]


@of_each_kind
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("node", NODES)
def test_a_node_is_lost_at_any_stage(
    tmp_path: Path, expected: Expected, node: str, stage: int, kind: Kind
) -> None:
    """Who has a standby goes on from there, at the batch that it has come to; nothing is restored, nobody goes back."""
    world = kind.begin(tmp_path)
    tick_losing(world, node, stage, in_turn=True)
    before = dict(world.engine.progress.standbys)
    tick(world)
    lost = {p for p, n in AT.items() if n == node}
    assert {p for p, f in world.engine.failed.items() if f.kind is FailureKind.NODE_LOST} == lost
    had, ready, newest = given(world), dict(world.engine.progress.standbys), world.engine.punctuations.newest
    promoted = recover(world)
    assert promoted == lost & (ready if kind.passive else STANDBYS).keys()
    for partition in promoted:
        at = world.engine.positions[partition]
        assert at == ready[partition] >= newest if kind.passive else at >= before[partition] - 8
    gives_more_in_one_job(world, promoted, had)
    finish(world, expected)
    assert world.engine.desired.generation == 1
    if kind.passive:
        assert world.engine.figures.restored <= len(lost - promoted)


@of_two_kinds
def test_both_are_lost_and_the_partition_comes_from_its_checkpoint(
    tmp_path: Path, expected: Expected, kind: Kind
) -> None:
    """A count without end depends on all input before: nobody could feed it again."""
    world = kind.begin(tmp_path)
    world.nodes.lose("a", "c")  # `count.0` and its standby
    tick(world, 2)
    assert "count.0" not in world.engine.progress.standbys
    newest = world.engine.punctuations.newest
    assert "count.0" not in recover(world)
    assert world.engine.positions["count.0"] == newest
    finish(world, expected)


@of_two_kinds
def test_a_standby_is_lost_and_begins_anew_elsewhere(tmp_path: Path, expected: Expected, kind: Kind) -> None:
    """The partition goes on.  Its next standby comes from the newest checkpoint, or is sent everything."""
    world = kind.begin(tmp_path, {"count.0": "d"}, 15)
    assert all_ready(world.engine)
    world.nodes.lose("d")
    tick(world, 2)
    assert world.engine.progress.standbys == {}
    assert world.engine.positions["count.0"] >= 15
    world.nodes.start("e")
    recover(world, {"count.0": "e"})
    world.run(lambda e: all_ready(e) and (kind.passive or e.punctuations.newest >= 10), limit=kind.begins_in)
    goes_to_its_standby(world)
    finish(world, expected)


@of_two_kinds
def test_after_a_promotion_the_next_checkpoint_is_complete(
    tmp_path: Path, expected: Expected, kind: Kind
) -> None:
    """One that is being taken then is given up where the standby was to store itself, which has passed it."""
    world = test_standbys.world_of(tmp_path, text=kind.text)
    world.run(lambda e: bool(e.punctuations.open) and past(15)(e))
    announced = world.engine.punctuations.open
    goes_to_its_standby(world)
    assert kind.passive or not set(announced) & set(world.engine.punctuations.open)
    world.run(lambda e: e.punctuations.newest > max(announced))
    assert kind.passive or not world.engine.figures.failed_jobs > 2
    finish(world, expected)


@of_two_kinds
def test_at_the_end_of_the_stream_the_last_checkpoint_is_complete(
    tmp_path: Path, expected: Expected, kind: Kind
) -> None:
    """The standby has passed the last batch already, or has nothing to step, and must store itself there all the same."""
    world = test_standbys.world_of(tmp_path, text=kind.text)
    write = FileSink.write

    def slow(sink: FileSink, batch: int, table: object) -> None:
        if "best" in str(sink.folder) and batch > 55:
            raise SinkError("no answer")
        write(sink, batch, table)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSink, "write", slow)
        world.run(lambda e: e.progress.standbys.get("count.0") == 61)
        goes_to_its_standby(world)
        tick(world, 2)
    finish(world, expected)


@of_two_kinds
def test_a_host_that_began_anew_cannot_promote_what_it_had(
    tmp_path: Path, expected: Expected, kind: Kind
) -> None:
    world = kind.begin(tmp_path)
    world.nodes.lose("c")
    tick(world, 2)
    world.nodes.start("a", "e")  # another process of node `a`, with nothing
    assert recover(world) == {"count.0"}
    tick(world, 2)
    assert world.engine.failed["count.0"].kind is FailureKind.STATE_LOST
    world.nodes.lose("a")
    tick(world, 2)
    assert "count.0" not in recover(world)
    finish(world, expected)


@of_each(KINDS | MIXED, "active", "arrays", "active, passive")
@seeds(range(4), range(4, 8), 192)
def test_nodes_are_lost_at_any_moment(tmp_path: Path, expected: Expected, seed: int, kind: Kind) -> None:
    """Nodes, jobs and drivers are lost at any stage, plans come early and late, and some take everything back."""
    rng = random.Random(seed)
    world = test_standbys.world_of(tmp_path, kind.standbys, kind.text)

    def planned(living: Sequence[str]) -> None:
        recover(world, {p: rng.choice(living) for p in kind.standbys} if rng.random() < 0.6 else None)

    lose_nodes_at_any_moment(world, rng, back, planned)
    recover(world)
    finish(world, expected)


@of_each(MIXED, "active, passive")
@seeds([0], range(1, 3), 97)
def test_nodes_are_lost_while_sinks_are_away(
    tmp_path: Path, expected: Expected, seed: int, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not shown is not lost with its node, and nobody who takes its place shows it twice or otherwise."""
    dice = random.Random(seed)
    world = test_standbys.world_of(tmp_path, kind.standbys, kind.text)
    sinks = FilesAway(world, dice, monkeypatch)

    def planned(living: Sequence[str]) -> None:
        recover(world, {p: dice.choice(living) for p in kind.standbys} if dice.random() < 0.6 else None)

    def some_come_back() -> None:
        if dice.random() < 0.7:
            sinks.come_back()

    lose_nodes_at_any_moment(world, dice, back, planned, some_come_back, sinks.leave)
    assert sinks.refused
    sinks.come_back()
    recover(world)
    finish(world, expected)


@of_each_kind
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("lost", ["", "c", "a"], ids=["nothing-is-lost", "where-it-was", "where-it-goes"])
def test_a_partition_at_work_goes_on_where_its_standby_is(
    tmp_path: Path, expected: Expected, lost: str, stage: int, kind: Kind
) -> None:
    """Its node is to be emptied; the node, or that of its standby, may be lost in the middle of the job that promotes."""
    world = kind.begin(tmp_path)
    engine, positions = world.engine, dict(world.engine.positions)
    copied, newest = engine.progress.standbys["count.0"], engine.punctuations.newest
    standbys = {p: n for p, n in STANDBYS.items() if p != "count.0"}
    world.want(1, newest, {**AT, "count.0": "a"}, retain=True, standbys=standbys)
    at = engine.positions["count.0"]
    assert engine.positions == positions | {"count.0": at}, "somebody else goes back"
    assert at >= newest
    assert at == copied or not kind.passive

    tick_losing(world, lost, stage)
    tick(world, 2)
    if lost != "a":
        assert isinstance(world.nodes.hosts["a"].runtimes["count.0"], OperatorRuntime)
        assert engine.at_work["count.0"] >= (copied if kind.passive else newest)
        assert "c" not in world.nodes.hosts or "count.0" not in world.nodes.hosts["c"].runtimes
        assert engine.figures.states_here == engine.figures.states_there == 0, "a state was read"
    elif kind.passive:
        assert engine.failed["count.0"].kind is FailureKind.NODE_LOST
    if lost:
        recover(world)
    finish(world, expected)


@of_two_kinds
def test_a_standby_that_is_gone_when_its_partition_is_to_go_there_is_no_loss(
    tmp_path: Path, expected: Expected, kind: Kind
) -> None:
    """The partition goes on from the newest checkpoint, as one that moves."""
    world = kind.begin(tmp_path)
    engine = world.engine
    engine.standbys._drop("count.0", "it came to nothing")
    world.want(1, engine.punctuations.newest, {**AT, "count.0": "a"}, retain=True)
    assert engine.positions["count.0"] == engine.punctuations.newest
    world.run(lambda e: "count.0" in e.at_work)
    finish(world, expected)
    assert engine.desired.generation == 1, "everything went back"
