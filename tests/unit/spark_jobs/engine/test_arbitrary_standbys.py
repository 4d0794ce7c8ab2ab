"""Operators of which a replay may differ, with passive standbys: what a standby does not have has reached nobody, so that
after a loss all readers, and all outputs, tell one story, and nobody goes back."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.contract import Inbox
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine import standbys
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.node import standbys as node_standbys
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.sinks import FileSink, Opening
from reprise.spark_jobs.topology import load_text
from tests.support import coin
from tests.support.coin import EVERY, TOLD_TO_TWO
from tests.support.engine_worlds import goes_back, placed, still_shown, to_its_end
from tests.support.losses import lose_nodes_at_any_moment, tick_losing
from tests.support.pumped_engine import PumpedNodes
from tests.support.seeds import seeds
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

NODES = ("a", "b", "c", "d")
AT = {"tweets.0": "a", "tweets.1": "b", "told.0": "c", "left.0": "a", "right.0": "b"}
STANDBYS = {"told.0": "d"}


class Readers:
    """What readers were given of each batch.  Those from before everything goes back step on until they have other orders:
    they do not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[int, object] = {}
        self.differ: list[int] = []
        self.compared = self._life = 0
        step = coin.Ledger.step

        def begun(ledger: coin.Ledger) -> None:
            ledger.life = self._life  # type: ignore[attr-defined]

        def stepped(ledger: coin.Ledger, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
            table = inbox.table()
            if ledger.life != self._life:  # type: ignore[attr-defined]
                return step(ledger, state, inbox)
            row = [] if table is None else table.to_pylist()
            self.compared += inbox.batch in self.rows
            if self.rows.setdefault(inbox.batch, row) != row:
                self.differ.append(inbox.batch)
            return step(ledger, state, inbox)

        monkeypatch.setattr(coin.Ledger, "__init__", begun)
        monkeypatch.setattr(coin.Ledger, "step", stepped)

    def go_back(self, upto: int) -> None:
        self._life += 1
        self.rows = {batch: row for batch, row in self.rows.items() if batch <= upto}


@pytest.fixture(autouse=True)
def readers(monkeypatch: pytest.MonkeyPatch) -> Readers:
    return Readers(monkeypatch)


def world_of(
    folder: Path,
    text: str = TOLD_TO_TWO,
    at: Mapping[str, str] = AT,
    standbys: Mapping[str, str] = STANDBYS,
    changes: Mapping[str, Any] | None = None,
) -> World:
    return placed(load_text(text, changes=changes or {}), folder, at, standbys)


def is_ready(engine: Engine) -> bool:
    return engine.standbys.output_waits <= engine.progress.standbys.keys()


def recover(world: World, standby: str | None = None) -> bool:
    """What a coordinator decides: what failed goes to its standby, or anywhere.  `standby`: where new ones are to be.
    False: nothing, as that would differ, and everything has to go back."""
    engine, living = world.engine, sorted(world.nodes.living())
    at, wanted = dict(engine.desired.assignment), dict(engine.desired.standbys)
    for i, partition in enumerate(world.topology.order):
        if partition in engine.positions and at.get(partition) in living:
            continue
        if partition in engine.progress.standbys and wanted.get(partition) in living:
            at[partition] = wanted.pop(partition)
        elif partition in engine.standbys.output_waits:
            return False
        else:
            at[partition] = living[i % len(living)]
    if standby is not None:
        there = {p: n for p, n in wanted.items() if n in living}
        wanted = {**dict.fromkeys(engine.standbys.able, standby), **there}
    wanted = {p: n for p, n in wanted.items() if at[p] != n}
    world.want(engine.desired.generation, engine.punctuations.newest, at, retain=True, standbys=wanted)
    return True


def back(world: World, readers: Readers) -> None:
    engine, living = world.engine, sorted(world.nodes.living())
    readers.go_back(engine.punctuations.newest)
    goes_back(world, lambda at: {p: next(n for n in living if n != at[p]) for p in engine.standbys.able})


def ends(world: World, readers: Readers) -> None:
    """To the end, where readers were told one story."""
    to_its_end(world, lambda w: back(w, readers))
    assert readers.differ == [], "readers were given something else of a batch"


def finish(world: World, readers: Readers) -> None:
    """To the end, where outputs tell one story: each batch once, the sum of all before it, and the same in both."""
    ends(world, readers)
    stories = []
    for output in ("left", "right"):
        files = sorted((world.sink / output / "0").glob("batch-*.jsonl"))
        assert len(files) == 61
        own = 0
        stories.append([json.loads(line) for file in files for line in file.read_text().splitlines()])
        for row in stories[-1]:
            own += row["toss"]
            assert (row["own"], row["total"]) == (own, own)
    assert stories[0] == stories[1]
    assert len(stories[0]) == 61


def test_output_leaves_when_the_standby_has_it_and_not_before(tmp_path: Path, readers: Readers) -> None:
    world = world_of(tmp_path)
    engine, ahead = world.engine, 0
    world.run(is_ready)
    while not past(50)(engine):
        known = engine.standbys.there["told.0"].position
        tick(world)
        assert max(engine.positions["left.0"], engine.positions["right.0"]) <= known
        ahead = max(ahead, engine.positions["told.0"] - engine.positions["left.0"])
    assert ahead >= EVERY
    finish(world, readers)
    assert readers.compared == 61
    assert engine.figures.failed_jobs == 0


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # counts jobs
@pytest.mark.parametrize("every", [1, 5, 12])
def test_where_a_job_takes_as_long_as_a_batch_output_waits_for_every_batches_and_two_jobs(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch is due with each job, and no checkpoint and no reader makes it leave sooner: the jobs between the one in
    which a batch is stepped and the one in which it is sent are as many as docs/recovery.md says."""
    monkeypatch.setattr(engine_module, "WINDOW", 256)
    text = TOLD_TO_TWO.replace(f"every: {EVERY}", f"every: {every}")
    world = world_of(tmp_path, text.replace("everyBatches: 10", "everyBatches: 1000"))
    job, stepped, sent = 0, dict[int, int](), dict[int, int]()
    step, deliver = coin.Told.step, OperatorRuntime.deliver

    def steps(told: coin.Told, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        stepped.setdefault(inbox.batch, job)
        return step(told, state, inbox)

    def delivers(runtime: OperatorRuntime, message: Message) -> None:
        if (message.source, runtime.partition.id) == ("told.0", "left.0"):
            sent.setdefault(message.batch, job)
        deliver(runtime, message)

    monkeypatch.setattr(coin.Told, "step", steps)
    monkeypatch.setattr(OperatorRuntime, "deliver", delivers)
    monkeypatch.setattr(world.engine.release, "due", lambda *_: job)
    before: int | None = None
    while job < 50:
        job += 1
        tick(world)
        if before is None and is_ready(world.engine):
            before = max(stepped)
    assert before is not None and before < 10, "it has no standby"
    waited = [sent[batch] - stepped[batch] for batch in sent if batch > before]
    assert len(waited) > 20
    assert every <= max(waited) <= every + 2


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_it_goes_on_where_its_standby_is_and_nobody_goes_back(
    tmp_path: Path, readers: Readers, stage: int
) -> None:
    world = world_of(tmp_path)
    world.run(lambda e: past(25)(e) and is_ready(e))
    tick_losing(world, "c", stage, in_turn=True)
    tick(world)
    engine = world.engine
    assert engine.failed["told.0"].kind is FailureKind.NODE_LOST
    at = engine.progress.standbys["told.0"]
    assert at > engine.punctuations.newest
    assert recover(world, standby="a")
    assert engine.positions["told.0"] == at
    finish(world, readers)
    assert engine.desired.generation == 1
    assert not any(e.endswith("told.0") for e in engine.problems)


@pytest.mark.parametrize("seed", range(6))
def test_readers_that_are_lost_too_are_given_what_was_given_before(
    tmp_path: Path, readers: Readers, seed: int
) -> None:
    """What its standby has of its output is what left."""
    world = world_of(tmp_path)
    world.run(lambda e: past(21 + seed)(e) and is_ready(e))
    before = readers.compared
    world.nodes.lose("a", "c")  # `told.0`, a source and `left.0`
    tick(world, 2)
    assert recover(world, standby="b")
    newest = world.engine.punctuations.newest
    assert world.engine.positions["left.0"] == newest
    finish(world, readers)
    assert readers.compared > before + 30
    assert world.engine.desired.generation == 1


@pytest.mark.parametrize("seed", range(4))
def test_what_waits_for_a_checkpoint_waits_with_the_standby(
    tmp_path: Path, readers: Readers, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an output itself, and one of its readers has a standby, too: both show what a checkpoint covers, once."""
    text = TOLD_TO_TWO.replace(
        "      availability: passive", "      output: {priority: 1}\n      availability: passive"
    )
    text = text.replace(
        "output: {priority: 3}",
        "output: {priority: 3}\n      availability: passive-standby\n      standby: {every: 3}",
    )
    assert text.count("passive-standby") == 2
    world = world_of(tmp_path, text, AT | {"left.0": "c"}, STANDBYS | {"left.0": "b"})
    both = {"told.0", "left.0"}
    world.run(lambda e: past(22 + seed)(e) and bool(world.output()) and e.progress.standbys.keys() == both)
    shown, opened, opens = world.output(), list[int](), FileSink.open

    def opening(sink: FileSink, told: Opening) -> None:
        opened.append(told.position)
        opens(sink, told)

    monkeypatch.setattr(FileSink, "open", opening)
    world.nodes.lose("c")
    tick(world, 2)
    newest = world.engine.punctuations.newest
    ready = dict(world.engine.progress.standbys)
    at = world.engine.desired.assignment | {"told.0": "d", "left.0": "b"}
    world.want(1, world.engine.punctuations.newest, at, retain=True)
    assert {p: world.engine.positions[p] for p in ready} == ready
    tick(world)
    assert len(opened) == 2
    assert max(opened) <= newest, "nothing counts as shown that the checkpoint does not cover"
    finish(world, readers)
    still_shown(world, shown)
    own = sorted((world.sink / "told" / "0").glob("batch-*.jsonl"))
    assert len(own) == 61
    left = sorted((world.sink / "left" / "0").glob("batch-*.jsonl"))
    for one, other in zip(own, left, strict=True):
        assert json.loads(one.read_text())["toss"] == json.loads(other.read_text())["toss"]
    assert world.engine.desired.generation == 1


def test_without_the_wait_readers_are_told_two_stories(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all other tests here rest on can be seen."""
    monkeypatch.setattr(node_standbys, "let_wait", lambda *_: None)
    monkeypatch.setattr(PumpedNodes, "widens", False)
    world = world_of(tmp_path, TOLD_TO_TWO.replace(f"every: {EVERY}", "every: 1000"))
    world.run(lambda e: past(25)(e) and is_ready(e))
    world.run(lambda e: e.positions["left.0"] > e.standbys.there["told.0"].position and is_ready(e))
    world.nodes.lose("c")
    tick(world, 2)
    assert recover(world)
    with pytest.raises(AssertionError):
        finish(world, readers)


def test_lost_with_its_standby_it_stays_lost_until_everything_goes_back(
    tmp_path: Path, readers: Readers
) -> None:
    """Whoever decides: restored by itself it would give something else than its readers have."""
    world = world_of(tmp_path)
    world.run(lambda e: past(25)(e) and is_ready(e))
    world.nodes.lose("c", "d")
    tick(world, 2)
    engine = world.engine
    assert not recover(world)
    at = dict(engine.desired.assignment) | {"told.0": "a"}
    world.want(1, engine.punctuations.newest, at, retain=True)
    tick(world, 2)
    assert "told.0" in engine.failed
    assert "told.0" not in engine.positions
    back(world, readers)
    world.run(lambda e: "told.0" in e.at_work)
    finish(world, readers)
    assert engine.desired.generation == 2


def test_it_may_begin_later_than_others_after_everything_went_back(tmp_path: Path, readers: Readers) -> None:
    """Nobody has what it gave before."""
    world = world_of(tmp_path)
    world.run(lambda e: past(25)(e) and is_ready(e))
    world.nodes.lose("c", "d")
    tick(world, 2)
    engine, newest = world.engine, world.engine.punctuations.newest
    readers.go_back(newest)
    others = {p: n for p, n in AT.items() if p != "told.0"}
    world.want(2, newest, others, retain=True)
    tick(world, 4)
    world.want(2, newest, others | {"told.0": "a"}, retain=True, standbys={"told.0": "b"})
    finish(world, readers)
    assert engine.desired.generation == 2


def test_without_a_standby_output_waits_for_nobody(tmp_path: Path, readers: Readers) -> None:
    world = world_of(tmp_path)
    world.run(lambda e: past(15)(e) and is_ready(e))
    world.nodes.lose("d")
    world.run(past(45))
    assert not is_ready(world.engine)
    finish(world, readers)


@pytest.mark.parametrize("most", [{"MOST_S": 0.0}, {"MOST_JOBS": 0, "MOST_S": 0.5}], ids=str)
def test_a_standby_that_takes_nothing_holds_nobody_up(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch, most: Mapping[str, float]
) -> None:
    """There is no room for its copy.  What waits takes the room that it needs, or it would wait for itself; and then the
    standby is dropped, and all leaves.  Not before it has had as many jobs and as many seconds as `most` has."""
    for name, value in most.items():
        monkeypatch.setattr(standbys, name, value)
    text = TOLD_TO_TWO.replace("bufferMemory: 1Mi", "bufferMemory: 2Ki, bufferDisk: 2Ki")
    text = text.replace(f"every: {EVERY}", "every: 1000")
    world = world_of(tmp_path, text)
    dropped = False
    while not past(50)(world.engine):
        standby = world.engine.standbys.there.get("told.0")
        tick(world)
        if not dropped and any("output of its partition waits" in p for p in world.engine.problems):
            assert standby is not None
            assert standby.waits.jobs >= standbys.MOST_JOBS
            assert world.engine.clock() - standby.waits.since >= standbys.MOST_S
            dropped = True
        if "told.0" in world.engine.progress.standbys:
            assert world.engine.positions["left.0"] <= world.engine.standbys.there["told.0"].position
    assert dropped
    finish(world, readers)


def test_output_waits_no_longer_than_its_readers_let_it_get_ahead(tmp_path: Path, readers: Readers) -> None:
    """Nothing but that makes it send what it has: no checkpoint, and `every` is far away."""
    text = TOLD_TO_TWO.replace(f"every: {EVERY}", "every: 1000").replace(
        "everyBatches: 10", "everyBatches: 1000"
    )
    world = world_of(tmp_path, text)
    world.run(past(50))


def test_at_the_end_of_the_stream_no_output_waits(tmp_path: Path, readers: Readers) -> None:
    """Also while something is failed, and no checkpoint is taken."""
    world = world_of(tmp_path, TOLD_TO_TWO.replace(f"every: {EVERY}", "every: 1000"))
    world.run(lambda e: past(25)(e) and is_ready(e))
    engine = world.engine
    others = {p: n for p, n in AT.items() if p != "right.0"}
    world.want(1, engine.punctuations.newest, others, retain=True, standbys=STANDBYS)
    world.run(lambda e: e.positions["left.0"] == 61)


@seeds(range(8), range(8, 18), 282)
def test_nodes_are_lost_at_any_moment(tmp_path: Path, readers: Readers, seed: int) -> None:
    """Nodes, jobs and drivers are lost at any stage, and plans come early and late."""
    dice = random.Random(seed)
    world = world_of(tmp_path)
    lose_at_random(world, readers, dice)
    finish(world, readers)


def lose_at_random(world: World, readers: Readers, dice: random.Random) -> None:
    """Losses at any stage, of a partition, of its standby, or of both; at the end something is at work again."""
    driver = world.driver

    def another(*args: Any) -> Engine:
        engine = driver(*args)
        readers.go_back(engine.punctuations.newest)
        return engine

    world.driver = another  # type: ignore[method-assign]

    def planned(living: Any) -> None:
        if not recover(world, dice.choice(living)):
            back(world, readers)

    lose_nodes_at_any_moment(world, dice, lambda w: back(w, readers), planned)
    if not recover(world):
        back(world, readers)
