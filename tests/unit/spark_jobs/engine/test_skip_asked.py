"""Partitions that begin anew because a person said so, though their operators are not set to: what their code raises at is
gone by, each batch that lacks rows is marked, no other differs, and nothing that was shown is ever shown otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from reprise.spark_jobs.contract import Inbox, Kind, Place
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.errors import NotYetError, StoreError
from reprise.spark_jobs.operators import FlatMap
from reprise.spark_jobs.state.skips import SkipRecords
from tests.support import engine_worlds as worlds
from tests.support.engine_worlds import fault_free, still_shown
from tests.support.losses import cuts_power, fresh_nodes, replaces
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine.test_skipped import (
    back,
    begun,
    check,
    ends,
    finish,
    loses,
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("few_batches_ahead")


class Picky(FlatMap):
    """Raises at some batches, each time that it is given one."""

    kind = Kind.CONVERGENT
    bad: ClassVar[dict[str, int]] = {}
    """Partition -> a batch at which it raises."""
    raised: ClassVar[list[tuple[str, int]]] = []

    def initial(self, place: Place) -> Any:
        self.place = place.partition
        return super().initial(place)

    def step(self, state: Any, inbox: Inbox) -> Any:
        if self.bad.get(self.place) == inbox.batch:
            self.raised.append((self.place, inbox.batch))
            raise ValueError("cannot be parsed")
        return super().step(state, inbox)


PICKY = {"operators[parse].class": f"{__name__}:Picky", "operators[parse].deterministic": True}


def world_of(folder: Path, **changes: Any) -> World:
    return begun(folder, {**PICKY, **changes})


@pytest.fixture(autouse=True)
def nothing_raises() -> None:
    Picky.bad.clear()
    Picky.raised.clear()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    Picky.bad.clear()
    return fault_free(world_of(tmp_path_factory.mktemp("fault-free")))


def poisoned(world: World) -> set[str]:
    return {p for p, failure in world.engine.failed.items() if failure.is_poison}


def set_aside(world: World, *more: str, anew: Mapping[str, str] | None = None) -> set[str]:
    """What raised, and `more`, is taken off its node, as a coordinator does; `anew`: with a wish."""
    engine = world.engine
    gone = poisoned(world) | set(more)
    at = {p: n for p, n in engine.desired.assignment.items() if p not in gone and n in world.nodes.hosts}
    world.want(engine.desired.generation, engine.punctuations.newest, at, retain=True, anew=anew)
    return gone


def place(world: World, anew: Mapping[str, str] | None = None, *nodes: str) -> None:
    """All that has no place gets one, with a wish."""
    at = worlds.place(world, nodes or tuple(world.nodes.living()))
    engine = world.engine
    world.want(engine.desired.generation, engine.punctuations.newest, at, retain=True, anew=anew)


def raises_at(world: World, partition: str, batch: int) -> None:
    """Until its code has raised."""
    Picky.bad[partition] = batch
    world.run(lambda e: bool(poisoned(world)))
    assert poisoned(world) == {partition}


def skip(world: World, *partitions: str, wish: str = "w1") -> None:
    """As a coordinator carries a wish out: it is told, and the partitions are placed some jobs later."""
    anew = dict.fromkeys(partitions, wish)
    set_aside(world, *partitions, anew=anew)
    tick(world, 2)
    place(world, anew)


@pytest.fixture
def raised(tmp_path: Path) -> World:
    """The code of `parse.0` has raised at batch 23."""
    world = world_of(tmp_path)
    raises_at(world, "parse.0", 23)
    return world


@pytest.mark.wide
def test_a_batch_at_which_code_raises_is_gone_by(raised: World, expected: dict[str, bytes]) -> None:
    world = raised
    set_aside(world)
    tick(world, 5)
    skip(world, "parse.0")
    (found,) = world.engine.skipping.skips
    assert (found.partition, found.until) == ("parse.0", 60)
    assert found.needed is not None and max(found.after.values()) <= found.needed < 23
    assert ends(world, expected)
    assert Picky.raised == [("parse.0", 23)]


@pytest.mark.wide
@pytest.mark.parametrize("then", ["driver", "rollback"])
def test_who_replays_the_gap_does_not_raise_again_and_shows_the_same(
    raised: World, expected: dict[str, bytes], then: str
) -> None:
    world = raised
    skip(world, "parse.0")
    newest = world.engine.punctuations.newest
    world.run(lambda e: past(27)(e) or bool(e.not_kept))
    assert world.engine.punctuations.newest == newest < 23
    shown = world.output()
    if then == "driver":
        world.driver()
        world.engine.begin(newest)
        world.want(2, newest, world.spread(*world.nodes.living()))
    else:
        back(world, *world.nodes.living())
    finish(world)
    assert check(world, expected)
    assert Picky.raised == [("parse.0", 23)], "it was given the batch again"
    still_shown(world, shown)


def test_a_state_that_cannot_be_read_is_not_asked_for(world: World, expected: dict[str, bytes]) -> None:
    for file in (world.checkpoints / "state").rglob("*window*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    at = world.engine.desired.assignment["window.1"]
    lost = [p for p, n in world.engine.desired.assignment.items() if n == at and not p.startswith("tweets")]
    world.nodes.lose(at)
    tick(world, 1)
    skip(world, *lost)
    assert {s.partition for s in world.engine.skipping.skips} == set(lost)
    world.run(past(31))
    assert not world.engine.bad_checkpoints
    assert ends(world, expected)


def test_a_plan_that_comes_with_the_wish_waits_for_the_word_of_the_readers(
    raised: World, expected: dict[str, bytes]
) -> None:
    world = raised
    set_aside(world)
    with pytest.raises(NotYetError, match="has still to say what it has applied"):
        place(world, {"parse.0": "w1"})
    assert "parse.0" not in world.engine.positions
    tick(world, 1)
    place(world, {"parse.0": "w1"})
    assert [s.partition for s in world.engine.skipping.skips] == ["parse.0"]
    finish(world)
    assert check(world, expected)


def test_a_wish_is_obeyed_once(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """It may stand in the desired state for longer; what is lost later is restored, though its readers are at work."""
    world = world_of(tmp_path)
    world.nodes.start("e", "f")
    raises_at(world, "parse.0", 23)
    wish = {"parse.0": "w1"}
    set_aside(world, "parse.0", anew=wish)
    tick(world, 2)
    place(world, wish, "e")
    assert len(world.engine.skipping.skips) == 1
    world.run(past(26))
    readers = {p: n for p, n in world.engine.desired.assignment.items() if p != "parse.0"}
    assert "e" not in readers.values()
    world.nodes.lose("e")
    tick(world, 2)
    place(world, wish, "f")
    assert len(world.engine.skipping.skips) == 1
    assert world.engine.skipping.refused == {}
    finish(world)
    check(world, expected)


def test_a_wish_that_is_taken_back_leaves_nothing(world: World, expected: dict[str, bytes]) -> None:
    loses(world, "parse.0", jobs=1)
    set_aside(world, "parse.0", anew={"parse.0": "w1"})
    tick(world, 2)
    assert world.engine.skipping.sealed == ("parse.0",)
    set_aside(world)
    assert world.engine.skipping.sealed == ()
    place(world)
    assert ends(world, expected) == set()
    assert world.engine.skipping.skips == ()


def test_a_wish_that_is_taken_back_with_the_plan_itself_leaves_nothing(
    world: World, expected: dict[str, bytes]
) -> None:
    """The driver reads the newest desired state, and may never see the one in which nothing was placed yet."""
    loses(world, "parse.0", jobs=1)
    set_aside(world, "parse.0", anew={"parse.0": "w1"})
    tick(world, 2)
    place(world)
    assert world.engine.skipping.skips == ()
    finish(world)
    assert check(world, expected) == set()


def test_where_a_reader_is_lost_too_it_is_said_and_all_is_restored(
    world: World, expected: dict[str, bytes]
) -> None:
    loses(world, "parse.0", "window.1", jobs=1)
    skip(world, "parse.0")
    assert world.engine.skipping.skips == ()
    (said,) = [p for p in world.engine.problems if "not skipped" in p]
    assert said.endswith("parse.0: what reads it does not stay, or the driver is to end")
    assert world.engine.progress.refused == {"parse.0": world.engine.desired.anew["parse.0"]}
    finish(world)
    assert check(world, expected) == set()


def store_fails(patch: pytest.MonkeyPatch, rng: random.Random, refused: float, unanswered: float) -> None:
    """Some writes of a record of skips are refused, and of some the answer is lost."""
    write = SkipRecords.write

    def tries(records: SkipRecords, skips: Any) -> None:
        drawn = rng.random()
        if drawn >= refused:
            write(records, skips)
        if drawn < refused + unanswered:
            raise StoreError("the store does not answer")

    patch.setattr(SkipRecords, "write", tries)


def nothing_is_skipped(world: World, expected: dict[str, bytes]) -> None:
    """Everything goes back, as after another failure; this driver and its successor restore it."""
    Picky.bad.clear()
    back(world, *world.nodes.living())
    assert world.engine.progress.skipped == {}
    world.run(past(27))
    newest = world.engine.punctuations.newest
    world.driver()
    world.engine.begin(newest)
    assert world.engine.skipping.skips == ()
    world.want(9, newest, world.spread(*world.nodes.living()))
    finish(world)
    assert check(world, expected) == set()


@pytest.mark.parametrize("trouble", ["refused", "unanswered"])
def test_a_wish_is_void_after_the_store_has_not_taken_its_record(
    raised: World, expected: dict[str, bytes], trouble: str
) -> None:
    world, anew = raised, {"parse.0": "w1"}
    set_aside(world, anew=anew)
    tick(world, 2)
    with pytest.MonkeyPatch.context() as patch:
        store_fails(patch, random.Random(0), float(trouble == "refused"), float(trouble == "unanswered"))
        with pytest.raises(StoreError, match="does not answer"):
            place(world, anew)
    nothing_is_skipped(world, expected)


def test_a_wish_is_void_after_one_of_its_partitions_was_chosen(
    raised: World, expected: dict[str, bytes]
) -> None:
    """`best.0` has no reader to wait for; those of `parse.0` have not reported."""
    anew = {"parse.0": "w1", "best.0": "w1"}
    set_aside(raised, "best.0", anew=anew)
    with pytest.raises(NotYetError):
        place(raised, anew)
    nothing_is_skipped(raised, expected)


@pytest.mark.parametrize("then", ["rollback", "wish taken back"])
def test_a_wish_is_void_after_its_record_was_written_and_before_anything_is_installed(
    raised: World, expected: dict[str, bytes], then: str
) -> None:
    """Jobs run between the record and the next desired state: no host may step a batch without the partition."""
    world, anew = raised, {"parse.0": "w1"}
    set_aside(world, anew=anew)
    tick(world, 2)

    def fails(*_: Any) -> None:
        raise StoreError("the store does not answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "find_origins", fails)
        with pytest.raises(StoreError):
            place(world, anew)
    assert [skip.partition for skip in world.engine.store.skip_records().read() or ()] == ["parse.0"]
    assert world.engine.progress.skipped == {}
    tick(world, 3)
    if then == "wish taken back":
        set_aside(world)
        assert world.engine.store.skip_records().read() == ()
    nothing_is_skipped(world, expected)


def test_a_source_is_not_skipped(world: World, expected: dict[str, bytes]) -> None:
    loses(world, "tweets.0", jobs=1)
    skip(world, "tweets.0", "parse.0")
    assert world.engine.skipping.skips == ()
    assert any("spec.sources[tweets]: a source cannot begin anew" in p for p in world.engine.problems)
    assert world.engine.progress.refused == {"tweets.0": "w1", "parse.0": "w1"}
    finish(world)
    assert check(world, expected) == set()


def test_what_amnesia_would_be_refused_for_is_refused(tmp_path: Path) -> None:
    count = {
        "operators[window].class": "reprise.spark_jobs.operators:KeyedCount",
        "operators[window].with": {"keys": ["tag"]},
        "operators[best].with": {"by": "count", "k": 5, "keys": ["tag"], "scope": "batch"},
    }
    world = world_of(tmp_path, **count)
    raises_at(world, "parse.0", 23)
    skip(world, "parse.0")
    assert world.engine.skipping.skips == ()
    (said,) = [p for p in world.engine.problems if "not skipped" in p]
    assert "operator 'window', which reads it, is deterministic, so all later output could differ" in said
    assert world.engine.progress.refused == {"parse.0": world.engine.desired.anew["parse.0"]}
    world.run(lambda e: bool(poisoned(world)))
    assert Picky.raised == [("parse.0", 23)] * 2, "it is restored, and its code raises again"
    set_aside(world)
    assert world.engine.progress.refused == {}, "nobody wants it any more"


def test_what_is_being_restored_begins_anew_in_place_of_that(
    world: World, expected: dict[str, bytes]
) -> None:
    world.nodes.lose(world.engine.desired.assignment["parse.0"])
    world.nodes.start("e")
    tick(world, 2)
    lost = absent(world)
    place(world)
    assert {"parse.0"} <= world.engine.installing
    skip(world, *lost)
    assert {s.partition for s in world.engine.skipping.skips} == set(lost)
    assert ends(world, expected)


def absent(world: World) -> list[str]:
    """Operators that are not at work, be it that they are being installed."""
    positions = world.engine.at_work
    return [p for p in world.topology.order if p not in positions and not p.startswith("tweets")]


def placed(world: World, rng: random.Random, anew: Mapping[str, str] | None) -> None:
    """A plan, which the driver takes over when it can, or which another one replaces before."""
    for _ in range(60):
        try:
            return place(world, anew, *rng.sample(sorted(world.nodes.hosts), 3))
        except NotYetError:
            tick(world, 1)
        except StoreError:
            tick(world, rng.randint(0, 2))
            if rng.random() < 0.5:
                return None
    raise AssertionError("it waits for ever")


def taken(want: Callable[[], object]) -> None:
    """A desired state is taken over once the store answers."""
    while True:
        try:
            want()
        except StoreError:
            continue
        return


def something_is_decided(world: World, rng: random.Random, wish: str) -> None:
    """A new driver, a rollback of everything, or a plan: with a wish, for all that is absent or for some, or without."""
    kind = rng.random()
    if kind < 0.12:
        newest = world.engine.punctuations.newest
        world.driver()
        taken(lambda: world.engine.begin(newest))
        taken(lambda: world.want(rng.randint(1, 3), newest, world.spread(*world.nodes.living()), retain=True))
    elif kind < 0.25 or world.engine.not_kept:
        taken(lambda: back(world, *world.nodes.living()))
    else:
        asked = absent(world)
        asked = rng.sample(asked, rng.randint(0, len(asked))) if rng.random() < 0.3 else asked
        anew = dict.fromkeys(asked, wish) if rng.random() < 0.8 else None
        if rng.random() < 0.3:
            placed(world, rng, None)  # so they are being restored when somebody asks
            tick(world, rng.randint(0, 1))
        if rng.random() < 0.8:
            taken(lambda: set_aside(world, *(anew or ()), anew=anew))
            tick(world, rng.randint(0, 3))
        placed(world, rng, anew)


def comes_to_its_end(world: World, rng: random.Random) -> bool:
    """With wishes for whatever is not at work; whether all came back."""
    for number in range(12):
        tick(world, 1)
        anew = dict.fromkeys(absent(world), f"end{number}")
        set_aside(world, anew=anew)
        tick(world, 1)
        placed(world, rng, anew)
        world.run(lambda e: e.done or bool(e.not_kept) or bool(e.failed))
        if world.engine.not_kept:
            back(world, *world.nodes.living())
        elif world.engine.done and not world.engine.failed:
            return True
    return False


def has_standbys(world: World, rng: random.Random) -> list[str]:
    """Windows have standbys from now on, somewhere else, and who is lost goes where one is ready; those that did."""
    want, promoted = world.want, list[str]()

    def wants(generation: int, checkpoint: int, at: Mapping[str, str], **more: Any) -> None:
        engine, living, now = world.engine, sorted(world.nodes.living()), dict(at)
        ready = {
            p: n for p, n in engine.desired.standbys.items() if p in engine.progress.standbys and n in living
        }
        if generation == engine.desired.generation:
            for partition in ready.keys() - engine.positions.keys() - (more.get("anew") or {}).keys():
                now[partition] = ready[partition]
                promoted.append(partition)
        windows = [p for p in now if p.startswith("window")]
        standbys = {p: ready[p] if rng.random() < 0.7 and p in ready else rng.choice(living) for p in windows}
        want(generation, checkpoint, now, standbys={p: n for p, n in standbys.items() if n != now[p]}, **more)

    world.want = wants  # type: ignore[method-assign]
    return promoted


MODES = ["checkpoint", "active-standby", "passive-standby", "upstream-backup"]
"""Of the windows, which read what is skipped."""


@pytest.mark.parametrize("mode", MODES[1:3])
def test_who_reads_what_is_skipped_is_promoted_meanwhile(
    tmp_path: Path, expected: dict[str, bytes], mode: str
) -> None:
    """What is sealed has still no place when the node of a reader is lost."""
    world = world_of(tmp_path, **{"operators[window].availability": mode})
    promoted = has_standbys(world, random.Random(1))
    place(world)
    world.run(past(20))
    raises_at(world, "parse.0", 28)
    anew = {"parse.0": "w1"}
    set_aside(world, anew=anew)
    tick(world, 2)
    world.nodes.start("e", "f")
    loses(world, "window.1")
    placed(world, random.Random(2), anew)
    assert "window.1" in promoted
    Picky.bad.clear()
    assert comes_to_its_end(world, random.Random(3))
    check(world, expected)


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("mode", MODES)
@seeds(range(3), range(3, 7), 143)
def test_wishes_at_any_moment(tmp_path: Path, expected: dict[str, bytes], seed: int, mode: str) -> None:
    """Code raises, nodes, jobs and drivers are lost at any stage, the store refuses records of skips or does not answer, and
    somebody asks for what is not at work, early, late, in part, or twice."""
    rng = random.Random(seed)
    for partition in rng.sample(["parse.0", "parse.1"], rng.randint(1, 2)):
        Picky.bad[partition] = rng.randint(5, 50)
    world = world_of(tmp_path, **{"operators[window].availability": mode})
    if mode.endswith("standby"):
        has_standbys(world, rng)
    fresh = fresh_nodes()
    shown: dict[str, bytes] = {}
    cuts_power(world, rng)
    with pytest.MonkeyPatch.context() as patch:
        store_fails(patch, rng, refused=0.2, unanswered=0.2)
        for number in range(rng.randint(3, 7)):
            tick(world, rng.randint(1, 10))
            if world.engine.done:
                break
            if rng.random() < 0.6:
                replaces(world, rng.sample(sorted(world.nodes.hosts), rng.randint(1, 2)), fresh)
            tick(world, rng.randint(0, 3))
            something_is_decided(world, rng, f"w{number}")
            shown = still_shown(world, shown)
    world.nodes.interrupt = lambda *_: None
    assert comes_to_its_end(world, rng), world.engine.failed
    check(world, expected)
    still_shown(world, shown)
