"""A partition is lost together with its standby: where its operator says how far back it reaches, what it reads feeds it
again, from no earlier than the checkpoint; else it comes from the checkpoint."""

# ruff: noqa: F811 - fixtures of the tests of standbys and of upstream backup, which hold here as well
from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.node.deltas import Delta
from reprise.spark_jobs.node.passive import PassiveStandby
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import fault_free, goes_back, placed
from tests.support.hashtags import SKIPPED
from tests.support.losses import lose_nodes_at_any_moment, tick_losing
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine import test_standbys as standbys
from tests.unit.spark_jobs.engine.test_standbys import all_ready, recover, stands_still
from tests.unit.spark_jobs.engine.test_upstream_backup import (
    AT,
    Watch,
    expected,  # noqa: F401 - the output without a failure, which is the same
    fed,
    finish,
    has_no_idea,
    lose,
    rebuilds,
    restore,
    watch,  # noqa: F401 - what each partition gives, and what is read
)
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("exchange", "small_windows")]
NODES = ("a", "b", "c", "d", "e")
MODES = ("active-standby", "passive-standby")
OPERATORS = ("parse", "window", "best", "all")
STANDBYS = {"parse.0": "e", "window.0": "e"}
"""Each alone on its node, and their standbys on one that has nothing else."""
SHORT = {"recovery.bufferMemory": "8Ki"}


def with_mode(mode: str, names: Collection[str] = ("parse", "window")) -> dict[str, Any]:
    found: dict[str, Any] = {f"operators[{name}].availability": mode for name in names}
    if mode == "passive-standby":
        found |= {f"operators[{name}].standby": {"every": 3} for name in names}
    return found


def world_of(folder: Path, changes: Mapping[str, Any], placed_at: Mapping[str, str] = STANDBYS) -> World:
    return placed(load_text(SKIPPED, changes=dict(changes)), folder, AT, placed_at, NODES)


def stands_between_checkpoints(world: World) -> None:
    """All have come to the middle of the window of batches 22 to 28, checkpoint 20 is complete, and the stream goes on."""
    world.run(past(23))
    paused(world.engine, True)
    world.run(lambda e: e.punctuations.newest == 20 and not e.punctuations.open and all_ready(e) and e.idle)
    assert world.engine.horizon < 28
    paused(world.engine, False)


def ready_at(batch: int) -> Any:
    return lambda e: past(batch)(e) and all_ready(e)


def loses_at(world: World, stage: int, node: str, *more: str) -> None:
    """A node is lost at a stage of the next job, when that comes to it, and others with it; the driver has seen it."""
    tick_losing(world, node, stage, *more, in_turn=True)
    tick(world, 2)


def paused(engine: Engine, now: bool) -> None:
    engine.desired = replace(engine.desired, paused=now)


@pytest.mark.wide
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_the_standby_is_lost_in_the_job_that_promotes_it(
    tmp_path: Path, expected: dict[str, bytes], mode: str, stage: int, watch: Watch
) -> None:
    watch.begin()
    world = world_of(tmp_path, with_mode(mode))
    stands_between_checkpoints(world)
    lose(world, "d")
    assert recover(world) == {"window.0"}
    loses_at(world, stage, "e")
    assert world.engine.progress.backed == {"window.0"}
    restore(world, "a")
    assert fed(world) == {"window.0"}
    finish(world, expected)
    assert watch.read == []
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_no_partition_counts_as_lost_that_was_promoted(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Where it moves later, it goes by a checkpoint like any other."""
    world = world_of(tmp_path, with_mode("active-standby"))
    stands_between_checkpoints(world)
    lose(world, "d")
    assert recover(world) == {"window.0"}
    assert world.engine.upstream._lost == set()
    world.run(lambda e: not e.installing)
    at, newest = {**world.engine.desired.assignment, "window.0": "a"}, world.engine.punctuations.newest
    world.want(1, newest, at, retain=True)
    assert fed(world) == set()
    finish(world, expected)


@pytest.mark.wide
@pytest.mark.parametrize("mode", MODES)
def test_the_checkpoint_is_taken_where_it_is_newer(tmp_path: Path, mode: str, watch: Watch) -> None:
    """A window that was open at the checkpoint began before it, and nobody keeps for a standby what a checkpoint covers."""
    size = {"operators[window].with.size": "1900ms"}  # batches 1..19, 20..38, 39..57
    reference = fault_free(world_of(tmp_path / "reference", size, {}))
    watch.begin()
    world = world_of(tmp_path / "lost", with_mode(mode) | size)
    stands_between_checkpoints(world)
    lose(world, "d", "e")
    newest = world.engine.punctuations.newest
    assert world.engine.upstream.causes["window.0"] == 19 < newest
    assert world.engine.progress.backed == set()
    world.engine.upstream._forgotten["window.0"] = 10  # as if senders had not been told of it yet
    assert world.engine.upstream.ready(world.engine) == set(), "though it is all kept, it is not used"
    restore(world, "a")
    assert fed(world) == set()
    assert world.engine.positions["window.0"] == newest
    finish(world, reference)
    assert watch.read == ["window.0"]
    assert world.engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("mode", [*MODES, "upstream-backup"])
def test_senders_keep_nothing_for_it_that_a_checkpoint_covers(tmp_path: Path, mode: str) -> None:
    """With upstream backup they do: what a window that was open at the checkpoint depends on."""
    changes = with_mode(mode) | {"operators[window].with.size": "1900ms"}
    world = world_of(tmp_path, changes, {} if mode == "upstream-backup" else STANDBYS)
    engine, covered = world.engine, list[int]()
    while not past(50)(engine):
        newest = engine.punctuations.newest
        tick(world)
        parse = world.nodes.hosts["c"].runtimes["parse.0"]
        covered += [
            b for b in parse.buffers["window.0"].entries if b <= min(newest, engine.positions["window.0"])
        ]
    assert bool(covered) is (mode == "upstream-backup")
    assert "window.0" in engine.upstream.causes


def spare(engine: Engine) -> set[str]:
    """Who could be fed again if it was lost with its standby now."""
    known, newest = engine.upstream, engine.punctuations.newest
    return {p for p, cause in known.causes.items() if cause >= newest and known._kept(p) <= cause}


@pytest.mark.wide
def test_nothing_is_copied_of_a_partition_that_is_being_fed(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is on the way to where it was is no state that anything may follow from."""
    world = world_of(tmp_path, with_mode("passive-standby"))
    stands_between_checkpoints(world)
    lose(world, "d", "e")
    restore(world, "a")
    engine = world.engine
    install = engine.upstream.install("window.0")
    assert install is not None and install.replays_to is not None
    assert install.position + 1 < install.replays_to
    copied = list[int]()
    encode = Delta.encode

    def encoded(delta: Delta) -> Any:
        copied.append(delta.position)
        return encode(delta)

    monkeypatch.setattr(Delta, "encode", encoded)
    with pytest.MonkeyPatch.context() as patch:
        stands_still(patch, world, "a", "window.0", install.position + 1)
        recover(world, {"window.0": "b"})
        tick(world, 4)
        assert engine.at_work["window.0"] == install.position + 1
        standby = world.nodes.hosts["b"].runtimes["window.0"]
        assert isinstance(standby, PassiveStandby)
        assert standby.is_empty
    world.run(lambda e: "window.0" in e.progress.standbys)
    assert copied and min(copied) >= install.replays_to
    lose(world, "a")
    assert "window.0" in recover(world)
    finish(world, expected)


@pytest.mark.wide
def test_who_goes_to_its_copy_at_the_same_time_is_given_all_that_follows_from_there(
    tmp_path: Path, expected: dict[str, bytes], watch: Watch
) -> None:
    """A reader that is moved while it works begins again where its copy is, and needs more than it needed where it was: who
    gave less would send everything back."""
    watch.begin()
    changes = with_mode("passive-standby") | {"operators[window].standby": {"every": 20}}
    world = world_of(tmp_path, changes, {"parse.0": "e", "window.0": "b"})
    stands_between_checkpoints(world)
    lose(world, "c", "e")
    engine = world.engine
    copy = engine.progress.standbys["window.0"]
    assert engine.punctuations.newest < copy < engine.positions["window.0"]
    at = {**engine.desired.assignment, "parse.0": "a", "window.0": "b"}
    world.want(1, engine.punctuations.newest, at, retain=True)
    assert fed(world) == {"parse.0"}
    assert (engine.positions["parse.0"], engine.positions["window.0"]) == (copy, copy)
    finish(world, expected)
    assert engine.desired.generation == 1
    assert watch.read == []


@pytest.mark.wide
@pytest.mark.parametrize("mode", ["upstream-backup", *MODES])
def test_a_reader_that_is_lost_with_it_and_goes_to_its_copy_is_given_all_that_follows_from_there(
    tmp_path: Path, mode: str, watch: Watch
) -> None:
    """Where memory is short, what the copy of a reader needs is kept beside what the reader does: else all go back that the
    partition reads."""
    size = {"operators[window].with.size": "100ms"}  # of batch b nothing before is needed
    reference = fault_free(world_of(tmp_path / "reference", size, {}))
    watch.begin()
    changes = with_mode("passive-standby", ["best"]) | {"operators[best].standby": {"every": 20}}
    world = world_of(tmp_path / "lost", with_mode(mode, ["window"]) | changes | size | SHORT, {})
    placed = {"best.0": "a"} | ({} if mode == "upstream-backup" else {"window.0": "e"})
    world.want(1, 0, {**AT, "best.0": "e"}, standbys=placed)
    stands_between_checkpoints(world)
    engine = world.engine
    paused(engine, True)
    tick(world)  # senders are told of where everybody is now
    paused(engine, False)
    newest, copy = engine.punctuations.newest, engine.progress.standbys["best.0"]
    assert copy < engine.positions["best.0"]
    assert engine.upstream.causes["window.0"] == copy
    lose(world, "d", "e")
    assert engine.progress.kept_since > newest, "outputs that a checkpoint would need were dropped"
    assert recover(world) == {"best.0"}
    assert fed(world) == {"window.0"}
    assert (engine.positions["best.0"], engine.positions["window.0"]) == (copy, copy)
    finish(world, reference)
    assert engine.desired.generation == 1
    assert watch.read == []


@pytest.mark.wide
def test_code_that_raises_when_it_is_asked_leaves_checkpoints(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_no_idea(monkeypatch)
    world = world_of(tmp_path, with_mode("active-standby"))
    stands_between_checkpoints(world)
    assert world.engine.upstream.spare == {"parse.0", "parse.1"}
    assert world.engine.problems == []
    lose(world, "d", "e")
    restore(world, "a")
    assert fed(world) == set()
    finish(world, expected)


def back(world: World, wanted: Collection[str]) -> None:
    """Everything goes back to the newest checkpoint, and each of these has its standby on the next node."""
    living = sorted(world.nodes.living())
    other = dict(zip(living, [*living[1:], living[0]], strict=True))
    goes_back(world, lambda at: {p: other[at[p]] for p in wanted})


def lost_at_random(
    world: World,
    dice: random.Random,
    mine: Collection[str],
    output: dict[str, bytes],
    more: Callable[[], object] = lambda: None,
) -> None:
    """Nodes, one or two, jobs and drivers are lost at any stage; in the end the output is that.  `mine`: who is to have a
    standby; `more`: what happens after each plan."""

    def placed(living: Sequence[str]) -> dict[str, str]:
        return {p: dice.choice(living) for p in mine}

    def planned(living: Sequence[str]) -> None:
        recover(world, placed(living) if dice.random() < 0.7 else None)

    recover(world, placed(sorted(world.nodes.hosts)))

    def settles() -> None:
        if dice.random() < 0.6:
            tick(world, 4)  # most standbys are ready then
        more()

    lose_nodes_at_any_moment(world, dice, lambda w: back(w, mine), planned, settles)
    recover(world)
    finish(world, output)


@seeds(range(4), range(4, 8), 292)
def test_nodes_are_lost_at_any_moment(
    tmp_path: Path, expected: dict[str, bytes], seed: int, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operator in a way of its own; two nodes are lost as often as one, so that both copies are."""
    watch.begin()
    twins, dice = standbys.Watch(monkeypatch), random.Random(seed)
    modes = {name: dice.choice([*MODES, *MODES, "upstream-backup", "checkpoint"]) for name in OPERATORS}
    changes = {k: v for name, mode in modes.items() for k, v in with_mode(mode, [name]).items()}
    world = world_of(tmp_path, changes | (SHORT if dice.random() < 0.3 else {}), {})
    mine = [p for p in AT if modes.get(p.rpartition(".")[0]) in MODES]

    def two_at_once() -> None:
        busy = len(world.nodes.hosts) > 2 and not world.engine.done and not world.engine.failed
        if dice.random() < 0.6 and busy:
            world.nodes.lose(*dice.sample(sorted(world.nodes.hosts), 2))
            world.nodes.start(f"m{world.engine.jobs}", f"k{world.engine.jobs}")
            tick(world, dice.randint(1, 3))

    lost_at_random(world, dice, mine, expected, two_at_once)
    assert twins.compared > 0


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # counts jobs
@pytest.mark.wide
def test_who_counts_as_backed_is_while_standbys_of_its_readers_come_and_go(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A passive standby that is new may be behind what senders were told to forget, so that `window` could not be fed if its
    reader were lost with it.  It does not count as backed until that has caught up: too few for a moment, never too many.
    When that is so depends on when each message came, so one of some runs has to show it."""
    monkeypatch.setattr(engine_module, "WINDOW", 1)
    changes = with_mode("upstream-backup", ["window"]) | with_mode("passive-standby", ["best", "all"])

    def waits_in_a_run(period: int) -> int:
        watch.begin()
        world, fewer = world_of(tmp_path / f"{period}", changes, {}), 0
        upstream = world.engine.upstream
        for number in range(46):
            if number % period == 0:
                now = number // period % 2
                recover(world, {"best.0": "ed"[now], "all.0": "de"[now]})
            tick(world)
            found = rebuilds(world, watch)
            waits = {
                p for p in upstream.causes.keys() & upstream.wanted if upstream._kept(p) > upstream.causes[p]
            }
            assert not waits & found
            fewer += len(waits)
        return fewer

    assert any(waits_in_a_run(period) for period in (7, 10, 5, 9, 6, 8))
