"""Drivers that end while a query is being skipped, or after that, and a next one that goes on with what lives: what lacks
rows is marked, nothing else differs, nobody who lives begins again, and a wish that no record has is void."""

# ruff: noqa: F811
from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.adoption import SurveyError, _has_worked, adopt
from reprise.spark_jobs.node.command import Report, Usage
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from tests.support.engine_worlds import still_shown
from tests.support.losses import cuts_power, fresh_nodes, replaces
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine.test_adoption import dies, follows, next_driver
from tests.unit.spark_jobs.engine.test_scope import installed
from tests.unit.spark_jobs.engine.test_skip_asked import (
    Picky,
    absent,
    comes_to_its_end,
    expected,  # noqa: F401 - the output without a failure
    nothing_raises,  # noqa: F401
    place,
    placed,
    raises_at,
    set_aside,
    skip,
    world_of,
)
from tests.unit.spark_jobs.engine.test_skipped import back, check, finish, loses
from tools.testbed.local_engine import World, past, tick


def lasting(folder: Path, **changes: Any) -> World:
    """A topology whose partitions outlive their driver."""
    return world_of(folder, **{"recovery.driverGrace": "60s", **changes})


@pytest.fixture(autouse=True)
def few_batches_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WINDOW", 4)


@pytest.mark.wide
@pytest.mark.parametrize("jobs", [0, 1, 3])
@pytest.mark.parametrize("stage", [0, 2])
def test_wherever_a_driver_ends_after_a_gap_all_goes_on_where_it_is(
    tmp_path: Path, expected: dict[str, bytes], jobs: int, stage: int
) -> None:
    world = lasting(tmp_path)
    raises_at(world, "parse.0", 13)
    skip(world, "parse.0")
    tick(world, 1)
    assert "parse.0" in world.engine.at_work
    skips, shown = world.engine.skipping.skips, world.output()
    dies(world, world.engine.jobs + 1 + jobs, stage, 1)
    before = installed(world)
    assert follows(world) == ""
    engine = world.engine
    assert engine.skipping.skips == skips and not engine.desired.anew
    assert engine.positions.keys() == world.topology.partitions.keys()
    place(world)
    world.run(lambda e: e.done or bool(e.not_kept))
    assert not engine.not_kept and installed(world) == before, "it was restored"
    assert check(world, expected)
    assert Picky.raised == [("parse.0", 13)]
    still_shown(world, shown)


@pytest.mark.wide
def test_a_gap_that_is_on_record_and_was_told_to_nobody_stays_one(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is killed between the record and the first order: the next one restores it, through the gap."""
    world = lasting(tmp_path)
    raises_at(world, "parse.0", 13)
    wrote = SkipRecords.write

    def killed(self: SkipRecords, skips: Collection[Skip]) -> None:
        wrote(self, skips)
        if skips:
            raise KeyboardInterrupt

    monkeypatch.setattr(SkipRecords, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        skip(world, "parse.0")
    monkeypatch.undo()
    monkeypatch.setattr(engine_module, "WINDOW", 4)
    before = installed(world)
    assert follows(world) == ""
    assert [s.partition for s in world.engine.skipping.skips] == ["parse.0"]
    assert world.engine.positions.keys() == world.topology.partitions.keys() - {"parse.0"}
    place(world)
    finish(world)
    assert check(world, expected)
    assert Picky.raised == [("parse.0", 13)], "it was given the batch again"
    now = installed(world)
    assert {p: now[p] for p in before if p != "parse.0"} == {p: before[p] for p in before if p != "parse.0"}


@pytest.mark.parametrize("behind", [0, 1])
def test_what_stands_where_it_begins_anew_is_restored_as_its_state_may_be_that_of_before(
    tmp_path: Path, behind: int
) -> None:
    """The record is written, and no host has heard of it; one that is before that batch passes it by the record."""
    world = lasting(tmp_path)
    world.run(past(12))
    engine = world.engine
    at = engine.positions["parse.0"]
    readers = {t: min(engine.positions[t], at) for t in engine.skipping._readers("parse.0")}
    engine.skipping.records().write((Skip("parse.0", at + behind, readers),))
    assert follows(world) == ""
    assert world.engine.skipping.skips
    assert ("parse.0" in world.engine.positions) == bool(behind)
    assert len(world.engine.positions) == len(world.topology.partitions) - (not behind)


@pytest.mark.parametrize(
    ("usage", "worked"),
    [
        (Usage(0.0), False),
        (Usage(0.000_001), True),  # batches without rows are applied, too
        (Usage(0.1, rows=1), True),
        (Usage(0.0, load_s=0.01), True),  # as one that was restored at this very batch
        (None, True),
    ],
)
def test_who_has_applied_batches_or_read_a_state_may_have_that_of_before(
    usage: Usage | None, worked: bool
) -> None:
    found = {} if usage is None else {"parse.0": usage}
    assert _has_worked(Report(0, "h", {}, {}, usage=found), "parse.0") == worked


@pytest.mark.wide
def test_what_was_sealed_and_not_decided_is_taken_in_again(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    world = lasting(tmp_path)
    world.run(past(12))
    loses(world, "parse.0", jobs=1)
    set_aside(world, "parse.0", anew={"parse.0": "w1"})
    tick(world, 2)
    assert world.engine.skipping.sealed == ("parse.0",)
    assert follows(world) == ""
    place(world)
    finish(world)
    assert world.engine.skipping.skips == ()
    assert check(world, expected) == set()


def test_the_next_driver_can_be_asked(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """It knows nothing of what the partition has shown, and marks no less for it."""
    world = lasting(tmp_path)
    raises_at(world, "parse.0", 13)
    set_aside(world)
    dies(world, world.engine.jobs + 2, 1, 0)
    before = installed(world)
    assert follows(world) == ""
    skip(world, "parse.0")
    (found,) = world.engine.skipping.skips
    assert found.partition == "parse.0"
    world.run(lambda e: e.done or bool(e.not_kept))
    assert {p: i for p, i in installed(world).items() if p in before} == before
    assert check(world, expected)


@pytest.mark.wide
def test_a_reader_that_is_lost_with_the_driver_needs_what_was_never_made_and_all_goes_back(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    world = lasting(tmp_path)
    raises_at(world, "parse.0", 13)
    skip(world, "parse.0")
    tick(world, 1)
    shown = world.output()
    world.nodes.lose(world.engine.desired.assignment["window.1"])
    assert follows(world) == ""
    assert "window.1" not in world.engine.positions
    place(world)
    finish(world)
    assert check(world, expected)
    still_shown(world, shown)


def begins_another(world: World, rng: random.Random, fresh: Iterator[str]) -> None:
    """A driver after one that has ended anywhere: it goes on with what lives, or restores all."""
    desired, newest = next_driver(world), world.engine.punctuations.newest
    for _ in range(5):
        try:
            if not adopt(world.engine, desired, world.nodes.living()):
                return
            break
        except SurveyError:
            replaces(world, rng.sample(sorted(world.nodes.hosts), rng.randint(0, 1)), fresh)
    world.want(desired.generation + 1, newest, world.spread(*world.nodes.living()), retain=True)


@pytest.mark.wide
@seeds(range(3), range(3, 7), 143)
def test_drivers_end_and_people_ask_at_any_moment(
    tmp_path: Path, expected: dict[str, bytes], seed: int
) -> None:
    """Code raises, nodes and jobs are lost at any stage, drivers end before, while and after what is lost is skipped."""
    rng = random.Random(f"adoption and skips {seed}")
    for partition in rng.sample(["parse.0", "parse.1"], rng.randint(1, 2)):
        Picky.bad[partition] = rng.randint(5, 50)
    world, fresh, shown = lasting(tmp_path), fresh_nodes(), dict[str, bytes]()
    cuts_power(world, rng)
    for number in range(rng.randint(3, 7)):
        tick(world, rng.randint(1, 6))
        if world.engine.done:
            break
        if rng.random() < 0.5:
            replaces(world, rng.sample(sorted(world.nodes.hosts), 1), fresh)
        if rng.random() < 0.3:
            begins_another(world, rng, fresh)
        tick(world, rng.randint(0, 2))
        anew = dict.fromkeys(absent(world), f"w{number}") if rng.random() < 0.8 else None
        if rng.random() < 0.8:
            set_aside(world, *(anew or ()), anew=anew)
            tick(world, rng.randint(0, 3))
        if rng.random() < 0.4:
            begins_another(world, rng, fresh)
            anew = None
        if world.engine.not_kept:
            back(world, *world.nodes.living())
        else:
            placed(world, rng, anew)
        if rng.random() < 0.2:
            begins_another(world, rng, fresh)
        shown = still_shown(world, shown)
    world.nodes.interrupt = lambda *_: None
    assert comes_to_its_end(world, rng), world.engine.failed
    check(world, expected)
    still_shown(world, shown)
