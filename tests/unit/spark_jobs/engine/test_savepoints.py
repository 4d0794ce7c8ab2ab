"""Savepoints of a running engine, and topologies that begin from them: no row is lost, none is there twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.engine.savepoints import SavepointsNow, SavepointTaker
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.state.savepoints import Savepoint, Savepoints
from reprise.spark_jobs.topology import StreamTopology, from_object, load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import COIN, DIAMOND
from tests.unit.spark_jobs.engine.test_scope import in_the_middle, resource_of
from tools.testbed.local_engine import World, past

WISH = SavepointWish("before", "w1")


pytestmark = pytest.mark.usefixtures("little_is_released")


class Taking:
    """A driver's turns with these wishes."""

    def __init__(self, world: World) -> None:
        self.world, self.taker = world, SavepointTaker(world.engine, world.fence)

    def until(self, reached: Callable[[SavepointsNow], bool], *wishes: SavepointWish) -> SavepointsNow:
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            self.world.engine.tick(self.world.nodes.living(), threading.Event())
            self.taker.turn(wishes)
            if (now := self.taker.now) is not None and reached(now):
                return now
        raise AssertionError(f"not reached: {self.taker.now} {self.world.engine.problems[-3:]}")

    def take(self, wish: SavepointWish = WISH) -> Savepoint:
        now = self.until(lambda now: wish.id in now.done, wish)
        assert now.done[wish.id] == ""
        (found,) = (one for one in now.savepoints if one.name == wish.name)
        return found


def from_savepoint(
    resource: StreamTopology, world: World, name: str = "before", **more: Any
) -> StreamTopology:
    start = {"location": str(world.checkpoints), "savepoint": name, **more}
    changed = override(resource, {"checkpoint.startFrom": start})
    document = json.loads(changed.document)
    document["metadata"]["name"] = "second"
    return load_text(json.dumps(document))


def begun_from(resource: StreamTopology, folder: Path, savepoint: Savepoint) -> World:
    """The second topology at work on other nodes, from the checkpoint at which its location begins."""
    world = World(resource, folder, "second")
    world.nodes.start("x", "y")
    assert world.engine.punctuations.newest == savepoint.position
    world.engine.begin(savepoint.position)
    world.want(1, savepoint.position, world.spread("x", "y"))
    return world


def batch(path: str) -> int:
    return int(path.rpartition("batch-")[2].partition(".")[0])


def joined(first: World, second: World, position: int) -> dict[str, bytes]:
    """What the first has shown up to the savepoint, and the second from there."""
    after = second.output()
    assert all(batch(path) > position for path in after)
    return {path: data for path, data in first.output().items() if batch(path) <= position} | after


@pytest.mark.parametrize("state", ["arrays", pytest.param("paged", marks=pytest.mark.wide)])
def test_the_second_goes_on_where_the_savepoint_is(
    text: str, expected: dict[str, bytes], tmp_path: Path, state: str
) -> None:
    """Also after the nodes of the second were lost at once, and with the first deleted."""
    resource = override(resource_of(text), {"checkpoint.state": state})
    first = begun(resource, tmp_path)
    in_the_middle(first)
    released = first.engine.horizon
    savepoint = Taking(first).take()
    assert savepoint.position >= released
    first.run(lambda e: e.done)
    second = begun_from(from_savepoint(resource, first), tmp_path, savepoint)
    kept = first.output()
    for path in sorted(first.checkpoints.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    second.run(past(savepoint.position + 2))
    second.nodes.lose("x", "y")
    second.nodes.start("z")
    newest = second.engine.punctuations.newest
    second.forget()
    second.want(2, newest, second.spread("z"))
    second.run(lambda e: e.done)
    assert {p: d for p, d in kept.items() if batch(p) <= savepoint.position} | second.output() == expected
    assert min(map(batch, second.output())) == savepoint.position + 1


def test_it_stays_when_checkpoints_are_pruned_and_the_stream_goes_on(tmp_path: Path) -> None:
    first = begun(load_text(DIAMOND), tmp_path)
    in_the_middle(first)
    savepoint = Taking(first).take()
    first.run(lambda e: e.done)
    assert savepoint.position not in first.engine.store.positions()
    there = Savepoints(str(first.checkpoints))
    assert there.read("before") == savepoint
    assert all(there.state(savepoint, partition) for partition in savepoint.states)


def test_a_new_driver_of_the_second_copies_nothing_again(tmp_path: Path) -> None:
    first = begun(load_text(DIAMOND), tmp_path)
    in_the_middle(first)
    savepoint = Taking(first).take()
    second = begun_from(from_savepoint(first.resource, first), tmp_path, savepoint)
    second.run(lambda e: e.punctuations.newest > savepoint.position)
    Savepoints(str(first.checkpoints)).delete("before")
    again = second.driver()
    assert again.punctuations.newest > savepoint.position
    assert again.ledger.begins == savepoint.position


def test_output_that_was_not_shown_yet_is_the_firsts_to_show(tmp_path: Path) -> None:
    """With an operator that is not deterministic the checkpoint holds it."""
    first = begun(load_text(COIN), tmp_path)
    in_the_middle(first)
    taking = Taking(first)
    savepoint = taking.take()
    there = Savepoints(str(first.checkpoints))
    for partition in savepoint.states:
        assert not [name for name in there.state(savepoint, partition) or () if name.startswith("staged/")]
    first.run(lambda e: e.done)
    second = begun_from(from_savepoint(first.resource, first), tmp_path, savepoint)
    second.run(lambda e: e.done)
    together = joined(first, second, savepoint.position)
    assert together.keys() == first.output().keys()


def test_a_wish_waits_while_partitions_are_away_and_is_refused_at_the_end(tmp_path: Path) -> None:
    first = begun(load_text(DIAMOND), tmp_path)
    in_the_middle(first)
    first.nodes.lose("c")
    first.engine.tick(first.nodes.living(), threading.Event())
    taking = Taking(first)
    now = taking.until(lambda now: WISH.id in now.waits, WISH)
    assert now.waits[WISH.id] == "a checkpoint needs all partitions at work"
    first.nodes.start("c")
    first.want(2, first.engine.punctuations.newest, first.spread("a", "b", "c"))
    assert taking.take().position > 0
    other = SavepointWish("after", "w2")
    taken = taking.until(lambda now: "w3" in now.done, SavepointWish("before", "w3"))
    assert "there is a savepoint 'before' already" in taken.done["w3"]
    first.run(lambda e: e.done)
    assert "the stream has ended" in taking.until(lambda now: "w2" in now.done, other).done["w2"]
    deleted = taking.until(lambda now: "w4" in now.done, SavepointWish("before", "w4", delete=True))
    assert (deleted.done["w4"], deleted.savepoints) == ("", ())


def test_the_next_driver_knows_a_wish_that_was_carried_out(tmp_path: Path) -> None:
    first = begun(load_text(DIAMOND), tmp_path)
    in_the_middle(first)
    savepoint = Taking(first).take()
    first.driver()
    assert Taking(first).taker.now is None
    first.want(2, first.engine.punctuations.newest, first.spread("a", "b", "c"))
    assert Taking(first).take() == savepoint


def test_a_deletion_that_comes_again_does_not_take_what_was_made_since(tmp_path: Path) -> None:
    """It was carried out, and a savepoint of that name was taken after it; the next driver finds its wish still there."""
    first = begun(load_text(DIAMOND), tmp_path)
    in_the_middle(first)
    deletion, later = SavepointWish("before", "w2", delete=True), SavepointWish("before", "w3")
    taking = Taking(first)
    assert taking.until(lambda now: "w2" in now.done, deletion).done["w2"] == ""
    savepoint = taking.take(later)
    first.driver()
    first.want(2, first.engine.punctuations.newest, first.spread("a", "b", "c"))
    now = Taking(first).until(lambda now: "w2" in now.done, deletion)
    assert "was asked for after this" in now.done["w2"]
    assert now.savepoints == (savepoint,)
    assert Savepoints(str(first.checkpoints)).read("before") == savepoint


CHANGED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"sources[tweets].parallelism": 3, "operators[parse].parallelism": 3},
        "spec.sources[tweets].parallelism",
        "HashtagSource does not say how what it has read falls",
    ),
    (
        {
            "operators[count].class": "reprise.operators:RunningAggregate",
            "operators[count].with": {"keys": ["tag"], "aggregates": {"n": "count()"}},
        },
        "spec.operators[count].class",
        "another class does not understand its state",
    ),
    (
        {"operators[count].inputs": [{"from": "parse", "by": ["other"]}]},
        "spec.operators[count].inputs",
        "'other', which is not among the columns",
    ),
]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = begun(load_text(DIAMOND), tmp_path_factory.mktemp("taken"))
    in_the_middle(world)
    Taking(world).take()
    return world


@pytest.mark.parametrize(("changes", "field", "reason"), CHANGED)
def test_what_does_not_match_is_refused_before_anything_is_written(
    taken: World, tmp_path: Path, changes: dict[str, Any], field: str, reason: str
) -> None:
    document = json.loads(from_savepoint(taken.resource, taken).document)
    resource = override(from_object(document), changes)
    with pytest.raises(SpecError) as error:
        World(resource, tmp_path, "second")
    assert error.value.field == field
    assert reason in error.value.reason
    assert not list((tmp_path / "second" / "checkpoints").iterdir())


def renamed(resource: StreamTopology, was: str, now: str) -> StreamTopology:
    return load_text(resource.document.replace(f'"{was}"', f'"{now}"'))


def test_who_is_new_or_gone_has_to_be_named(taken: World, tmp_path: Path) -> None:
    resource = renamed(from_savepoint(taken.resource, taken), "top", "best")
    with pytest.raises(SpecError) as error:
        World(resource, tmp_path, "refused")
    assert {(e.field, e.reason.partition(":")[0]) for e in error.value.all} == {
        ("spec.operators[best]", "is not in savepoint 'before'"),
        (
            "spec.checkpoint.startFrom",
            "savepoint 'before' has an operator 'top', which this topology has not",
        ),
    }
    start = {"allowNew": ["best"], "allowGone": ["top"]}
    resource = renamed(from_savepoint(taken.resource, taken, **start), "top", "best")
    # the renamed lists name the new one twice: put the old name back
    document = json.loads(resource.document)
    document["spec"]["checkpoint"]["startFrom"]["allowGone"] = ["top"]
    resource = load_text(json.dumps(document))
    savepoint = Savepoints(str(taken.checkpoints)).read("before")
    second = begun_from(resource, tmp_path, savepoint)
    second.run(lambda e: e.done)
    assert {path.partition("/")[0] for path in second.output()} == {"count", "best"}


def test_no_such_savepoint_and_a_stream_that_has_begun(taken: World, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no savepoint 'other'"):
        World(from_savepoint(taken.resource, taken, "other"), tmp_path, "none")
    world = World(taken.resource, tmp_path, "begun")
    world.resource = from_savepoint(taken.resource, taken)
    with pytest.raises(SpecError, match="has begun already, without a savepoint"):
        world.driver()
