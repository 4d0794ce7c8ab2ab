"""Partitions that begin anew behind batches that nobody makes again: each batch that lacks rows is marked, no other differs,
and nothing that was shown is ever shown otherwise."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from reprise.spark_jobs.topology import expand, load_text
from tests.support.engine_worlds import fault_free, place, placed, still_shown, to_its_end
from tests.support.hashtags import SKIPPED
from tests.support.losses import lose_nodes_at_any_moment, tick_losing
from tests.support.seeds import seeds
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("few_batches_ahead")

NODES = ("a", "b", "c", "d")
MARK = ".gap.mark"


class Moody(Sink):
    """Takes everything in memory; the first `refused` marks fail in a way of its client library."""

    marks = True
    refused: ClassVar[int] = 0
    taken: ClassVar[dict[int, object]] = {}
    marked: ClassVar[set[int]] = set()

    def write(self, batch: int, table: object) -> None:
        self.taken.setdefault(batch, table)
        self.visible = batch

    def mark(self, batch: int) -> None:
        if Moody.refused:
            Moody.refused -= 1
            raise RuntimeError("no connection")
        self.marked.add(batch)

    def shown(self) -> list[tuple[int, float]]:
        return []


def world_of(folder: Path, forgetful: Collection[str] = ("parse", "window", "best", "all")) -> World:
    changes = {f"operators[{name}].availability": "amnesia" for name in forgetful}
    return begun(folder, changes)


def begun(folder: Path, changes: Mapping[str, Any]) -> World:
    """At work on all nodes; `parse.0` is alone on its own."""
    resource = load_text(SKIPPED, changes=changes)
    spread = {p: NODES[i % len(NODES)] for i, p in enumerate(expand(resource).order)}
    return placed(resource, folder, {**spread, "window.2": "d"})


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(world_of(tmp_path_factory.mktemp("fault-free")))


@pytest.fixture
def parse_forgets(tmp_path: Path) -> World:
    """In the middle of the stream, where nothing else may begin anew."""
    world = world_of(tmp_path, ["parse"])
    world.run(past(25))
    return world


def restore(
    world: World, *nodes: str, checkpoint: int | None = None, standbys: Mapping[str, str] | None = None
) -> None:
    """What is not at work goes to these nodes, and nobody goes back; `checkpoint`: another one than the newest."""
    newest = world.engine.punctuations.newest if checkpoint is None else checkpoint
    at = place(world, nodes)
    world.want(world.engine.desired.generation, newest, at, retain=True, standbys=standbys)


def back(world: World, *nodes: str) -> None:
    """Everything goes back to the newest checkpoint."""
    generation = world.engine.desired.generation + 1
    world.want(generation, world.engine.punctuations.newest, world.spread(*nodes), retain=True)


def finish(world: World) -> None:
    to_its_end(world, lambda w: back(w, *w.nodes.living()))


def nobody_went_back(world: World) -> None:
    """The generation of `world_of`: a skip that ended in a rollback of everything would show the same output, for more
    work."""
    assert world.engine.desired.generation == 1


def marked(output: dict[str, bytes]) -> set[str]:
    """Output files that have a marker beside them."""
    return {f"{name.removesuffix(MARK)}.jsonl" for name in output if name.endswith(MARK)}


def check(world: World, expected: dict[str, bytes]) -> set[str]:
    """All is shown, and what is not marked is as without a failure; what is marked."""
    output = world.output()
    found = marked(output)
    assert {name for name in output if not name.endswith(MARK)} == expected.keys()
    wrong = sorted(n for n in expected if output[n] != expected[n] and n not in found)
    assert not wrong, f"not marked, and not as without a failure: {wrong[:5]} {world.engine.skipping.skips}"
    allowed = {
        f"{output.replace('.', '/')}/batch-{batch:08d}.jsonl"
        for skip in world.engine.skipping.skips
        for output, (first, last) in skip.marked.items()
        for batch in range(first, last + 1)
    }
    assert found <= allowed, "more is marked than was skipped"
    return found


def ends(world: World, expected: dict[str, bytes]) -> set[str]:
    """To the end of the stream, and nobody goes back; what is marked."""
    finish(world)
    nobody_went_back(world)
    return check(world, expected)


def loses(world: World, *partitions: str, jobs: int = 2) -> None:
    """The nodes of these are lost, and so many jobs find it out."""
    world.nodes.lose(*{world.engine.desired.assignment[p] for p in partitions})
    tick(world, jobs)


@pytest.mark.wide
def test_a_partition_begins_anew_and_what_lacks_its_rows_is_marked(
    parse_forgets: World, expected: dict[str, bytes]
) -> None:
    world = parse_forgets
    loses(world, "parse.0")
    restore(world, *world.nodes.living())
    (skip,) = world.engine.skipping.skips
    assert skip.partition == "parse.0"
    assert skip.until == world.engine.positions["parse.0"] == world.engine.horizon
    found = ends(world, expected)
    assert found
    assert {int(n.split("batch-")[1][:8]) for n in found if n.startswith("all")} == set(
        range(min(skip.after.values()) + 1, skip.until + 1)
    )
    assert any(world.output()[n] != expected[n] for n in found), "nothing was skipped"


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("partition", ["parse.0", "window.2"])
def test_a_node_is_lost_at_any_stage(
    world: World, expected: dict[str, bytes], partition: str, stage: int
) -> None:
    node = world.engine.desired.assignment[partition]
    tick_losing(world, node, stage, in_turn=True)
    tick(world, 2)
    restore(world, *world.nodes.living())
    assert partition in {skip.partition for skip in world.engine.skipping.skips}
    assert ends(world, expected)


@pytest.mark.wide
def test_a_reader_that_is_lost_too_is_restored_and_so_is_what_it_reads(
    parse_forgets: World, expected: dict[str, bytes]
) -> None:
    """`window` comes back with its state, so it needs all that `parse` has made since the checkpoint."""
    world = parse_forgets
    loses(world, "parse.0", "window.1")
    restore(world, *world.nodes.living())
    assert world.engine.skipping.skips == ()
    assert ends(world, expected) == set()


@pytest.mark.wide
def test_what_was_shown_before_it_was_said_to_lack_rows_is_marked_as_well(
    parse_forgets: World, expected: dict[str, bytes]
) -> None:
    """A reader that was lost with what it reads is at work again before it is decided what is skipped. So it makes batches
    again without rows that they had, which outputs behind it have shown."""
    world = parse_forgets
    engine, at = world.engine, world.engine.desired.assignment
    loses(world, "parse.0", "window.1")
    assert "best.0" in engine.positions
    living = world.nodes.living()
    first = {p: n if n in living else at["best.0"] for p, n in at.items() if p != "parse.0"}
    world.want(engine.desired.generation, engine.punctuations.newest, first, retain=True)
    tick(world, 2)
    before = engine.positions["best.0"]
    restore(world, *living)
    (skip,) = engine.skipping.skips
    assert skip.after["window.1"] < before - 1, "it was lost, and is not further back than what reads it"
    tick(world)
    named = range(skip.marked["best.0"][0], before + 1)
    assert {f"best/0/batch-{b:08d}{MARK}" for b in named} <= world.output().keys()
    ends(world, expected)


def test_whole_queries_begin_anew_together(world: World, expected: dict[str, bytes]) -> None:
    loses(world, "parse.0", "window.0", "best.0")
    restore(world, *world.nodes.living())
    assert len(world.engine.skipping.skips) > 1
    assert ends(world, expected)


@pytest.mark.wide
def test_a_sink_whose_library_fails_at_a_mark_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition is lost itself, so the batches that nobody makes are marked when it is installed."""
    Moody.taken.clear()
    Moody.marked.clear()
    sink = {"class": f"{__name__}:Moody"}
    changes = {"operators[all].availability": "amnesia", "operators[all].output.sink": sink}
    world = World(load_text(SKIPPED, changes=changes), tmp_path, "w")
    world.engine.begin(0)
    world.nodes.start(*NODES)
    world.want(1, 0, {**world.spread(*NODES), "all.0": "d"})
    world.run(past(25))
    monkeypatch.setattr(Moody, "refused", 3)
    world.nodes.lose("d")
    tick(world, 2)
    restore(world, *world.nodes.living())
    assert [skip.partition for skip in world.engine.skipping.skips] == ["all.0"]
    finish(world)
    nobody_went_back(world)
    assert Moody.refused == 0
    assert Moody.marked
    assert world.engine.failed == {}


@pytest.mark.wide
@pytest.mark.parametrize("then", ["driver", "rollback", "loss"])
def test_what_fails_later_shows_the_same_again(tmp_path: Path, expected: dict[str, bytes], then: str) -> None:
    """A gap that is behind the newest checkpoint: all that was shown is made again, from before the gap."""
    world = world_of(tmp_path)
    world.run(past(24))
    newest = world.engine.punctuations.newest
    loses(world, "parse.0")
    restore(world, *world.nodes.living())
    world.run(lambda e: past(27)(e) or bool(e.not_kept))
    assert (skips := world.engine.skipping.skips)
    assert world.engine.punctuations.newest == newest
    shown = world.output()
    if then == "driver":
        world.driver()
        world.engine.begin(newest)
        assert world.engine.skipping.skips == skips
        world.want(2, newest, world.spread(*world.nodes.living()))
    elif then == "rollback":
        back(world, *world.nodes.living())
    else:
        loses(world, "window.0", jobs=1)
        restore(world, *world.nodes.living())
    finish(world)
    assert check(world, expected)
    still_shown(world, shown)


def test_two_gaps_are_told_until_a_newer_checkpoint_is_restored_from(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """A coordinator that has read no report between them must know of both."""
    world = world_of(tmp_path)
    world.run(past(12))
    checkpoint = world.engine.punctuations.newest
    for batch in (12, 33):
        world.run(past(batch))
        loses(world, "parse.0")
        restore(world, *world.nodes.living(), checkpoint=checkpoint)
    one, two = (skip for skip in world.engine.skipping.skips if skip.partition == "parse.0")
    told = world.engine.progress
    assert told.skipped["parse.0"] == tuple((min(s.after.values()) + 1, s.until) for s in (one, two))
    assert told.marked["all.0"] == (one.marked["all.0"], two.marked["all.0"])
    finish(world)
    world.want(world.engine.desired.generation, 61, dict(world.engine.desired.assignment))
    assert not world.engine.progress.marked and not world.engine.progress.skipped
    check(world, expected)


@pytest.mark.wide
def test_without_word_of_the_readers_all_is_restored(
    parse_forgets: World, expected: dict[str, bytes]
) -> None:
    """The plan comes before a job has sealed what was lost: readers may have applied more than they have said."""
    world = parse_forgets
    at = world.engine.desired.assignment
    world.nodes.lose(at["parse.0"])
    world.engine._lose("parse.0", Failure(FailureKind.NODE_LOST))
    restore(world, *world.nodes.living())
    assert world.engine.skipping.skips == ()
    assert ends(world, expected) == set()


@pytest.mark.wide
def test_a_moved_partition_keeps_its_state(world: World, expected: dict[str, bytes]) -> None:
    engine = world.engine
    moved = {**engine.desired.assignment, "parse.0": "d", "window.0": "a"}
    world.want(1, engine.punctuations.newest, moved, retain=True)
    assert ends(world, expected) == set()
    assert world.engine.skipping.skips == ()


def test_nothing_is_installed_while_it_is_not_known_what_is_on_record(
    world: World, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    loses(world, "parse.0")
    wrote = SkipRecords.write

    def written_and_not_answered(self: SkipRecords, skips: Collection[Skip]) -> None:
        wrote(self, skips)
        raise StoreError("connection lost")

    monkeypatch.setattr(SkipRecords, "write", written_and_not_answered)
    for _ in range(3):
        with pytest.raises(StoreError, match="connection lost"):
            restore(world, *world.nodes.living())
    assert "parse.0" not in world.engine.positions
    assert world.engine.skipping.skips == ()
    monkeypatch.undo()
    restore(world, *world.nodes.living())
    assert world.engine.skipping.skips
    record = json.loads((world.checkpoints / "skipped" / "00000001.json").read_text())
    assert [r["partition"] for r in record] == [s.partition for s in world.engine.skipping.skips]
    assert ends(world, expected)


def test_what_was_skipped_is_skipped_again_where_nothing_may_be_skipped_any_more(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    skip = Skip("parse.0", 7, {"all.0": 3}, 0, {"all.0": (4, 7)})
    world.engine.store.skip_records().write([skip])
    world.resource = load_text(SKIPPED)
    world.driver()
    world.engine.begin(0)
    assert (world.engine.skipping.able, world.engine.skipping.skips) == (frozenset(), (skip,))


@pytest.mark.parametrize("forgetful", [True, False], ids=["amnesia", "by command alone"])
def test_what_a_frozen_driver_writes_late_counts_for_nothing(tmp_path: Path, forgetful: bool) -> None:
    world = world_of(tmp_path) if forgetful else world_of(tmp_path, ())
    assert bool(world.engine.skipping.able) is forgetful
    late = world.engine.store.skip_records()
    world.driver()
    world.engine.begin(0)
    with pytest.raises(Exception, match="a driver of epoch 2 has begun"):
        late.write([Skip("parse.0", 7)])
    assert world.engine.store.skip_records().read() == ()


def test_each_driver_removes_the_records_of_those_before_it(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for _ in range(5):
        world.driver()
        world.engine.begin(0)
    assert [path.name for path in (world.checkpoints / "skipped").iterdir()] == ["00000006.json"]


@pytest.mark.usefixtures("exchange")
@seeds(range(3), range(3, 7), 143)
def test_nodes_are_lost_at_any_moment(tmp_path: Path, expected: dict[str, bytes], seed: int) -> None:
    """Nodes, jobs and drivers are lost at any stage, plans come early and late, and some take everything back."""
    rng = random.Random(seed)
    names = ["parse", "window", "best", "all"]
    world = world_of(tmp_path, rng.sample(names, rng.randint(1, 4)))
    lose_nodes_at_any_moment(
        world,
        rng,
        lambda w: back(w, *w.nodes.living()),
        lambda living: restore(world, *rng.sample(living, 3)),
    )
    restore(world, *world.nodes.living())
    shown = world.output()
    finish(world)
    check(world, expected)
    still_shown(world, shown)


@pytest.mark.wide
def test_a_reader_that_is_handed_to_its_standby_in_the_same_step_does_not_stay(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """A coordinator hands over and plans before the driver reads again.  The copy is behind its partition, so what it needs
    of the lost one is made again: nothing is skipped, and nobody else goes back."""
    changes = {
        "operators[parse].availability": "amnesia",
        "operators[window].availability": "passive-standby",
        "operators[window].standby.every": 30,
    }
    world = begun(tmp_path, changes)
    engine, at = world.engine, world.engine.desired.assignment
    world.nodes.start("e")
    world.want(1, 0, at, standbys={p: "e" for p in at if p.startswith("window")})
    world.run(lambda e: len(e.progress.standbys) == 3 and past(4)(e))
    loses(world, "parse.0")
    reader = next(p for p in at if p.startswith("window") and p in engine.positions)
    assert engine.progress.standbys[reader] < engine.positions[reader]
    now = {p: n for p, n in at.items() if n in world.nodes.hosts}
    lost = dict.fromkeys(at.keys() - now.keys(), "e")
    world.want(1, engine.punctuations.newest, {**now, **lost, reader: "e"}, retain=True)
    assert "parse.0" not in {skip.partition for skip in engine.skipping.skips}
    ends(world, expected)
