"""Drivers that go on with what lives, in the simulated world: real coordinator, driver, engine, hosts, agents."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from reprise.controller.driver import adopting
from reprise.controller.simulated_world.faults import Fault
from reprise.controller.simulated_world.schedule import RECOVERIES, Schedule, run
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_schedules import holds

GRACE = ", driverGrace: 10s"
WHOLE = 7


@pytest.fixture
def adoptions() -> Iterator[list[tuple[int, str]]]:
    """How many partitions each driver goes on with, or why with none."""
    seen: list[tuple[int, str]] = []
    adopt = adopting.adopt

    def adopted(engine: Engine, before: EngineSpec, living: Mapping[str, str]) -> str:
        reason = adopt(engine, before, living)
        seen.append((len(engine.positions), reason))
        return reason

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adopting, "adopt", adopted)
        yield seen


def test_a_driver_that_dies_takes_nothing_with_it(adoptions: list[tuple[int, str]]) -> None:
    holds(Schedule(5, (Fault(12.0, "driver-dies"),), recovery=GRACE))
    assert adoptions == [(WHOLE, "")]


@pytest.mark.wide
def test_with_a_rack_that_dies_only_that_is_lost(adoptions: list[tuple[int, str]]) -> None:
    holds(Schedule(5, (Fault(12.0, "driver-dies"), Fault(12.0, "rack-dies", 0, 20.0)), recovery=GRACE))
    ((number, reason),) = adoptions
    assert 0 < number < WHOLE and not reason


@pytest.mark.wide
def test_one_that_was_given_up_and_goes_on_beside_its_successor_changes_nothing(
    adoptions: list[tuple[int, str]],
) -> None:
    """Its executors live as long as it does, so its hosts are not the successor's."""
    holds(Schedule(5, (Fault(12.0, "driver-given-up", 0, 12.0),), recovery=GRACE))
    ((number, reason),) = adoptions
    assert number == 0 and "it has begun just now" in reason


@pytest.mark.wide
def test_hosts_wait_no_longer_than_the_grace(adoptions: list[tuple[int, str]]) -> None:
    holds(Schedule(5, (Fault(12.0, "driver-dies"),), recovery=", driverGrace: 100ms"))
    assert [number for number, _ in adoptions] == [0]


def drawn(seed: int) -> Schedule:
    """A schedule of a seed with some of its faults, and drivers that end."""
    dice = random.Random(f"adoption {seed}")
    plain = replace(
        Schedule.of(seed),
        checkpoint=dice.choice(("", "", ", localCopies: 0", ", keep: 1")),
        availability="checkpoint",
        order="aligned",
        recovery=dice.choice(RECOVERIES) + f", driverGrace: {dice.choice((4, 10, 30))}s",
    )
    kinds = "driver-dies", "driver-dies", "driver-given-up"
    ends = [
        Fault(
            round(dice.uniform(5, 17), 2),
            dice.choice(kinds),
            dice.randrange(60),
            round(dice.uniform(1, 10), 1),
        )
        for _ in range(dice.randint(1, 2))
    ]
    faults = [*plain.faults[: dice.randint(0, 9)], *ends]
    return replace(plain, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


@seeds([1, 2], range(3, 12), 300)
def test_nothing_breaks(seed: int) -> None:
    holds(drawn(seed))


@seeds([1], range(2, 11), 300)
def test_nothing_breaks_where_people_skip_queries(seed: int) -> None:
    holds(with_wishes(seed))


def with_wishes(seed: int) -> Schedule:
    """Somebody asks for a query to be skipped after each loss of nodes, and drivers end before, meanwhile and after that."""
    made = replace(drawn(seed), windowed=True, checkpoint="", recovery=f", driverGrace: {4 + seed % 3 * 10}s")
    dice = random.Random(f"losses of {seed}")
    losses = [Fault(round(dice.uniform(5, 15), 2), "node-dies", dice.randrange(60), 8.0) for _ in range(2)]
    return replace(made, faults=tuple(sorted((*made.faults, *losses), key=lambda f: f.at))).with_wishes()


@pytest.mark.wide
def test_a_driver_goes_on_with_everything_behind_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost waits for a node, so people have the time to ask; one of two nodes has what can be."""
    adopt, gone_on = adopting.adopt, list[int]()

    def adopted(engine: Engine, before: EngineSpec, living: Mapping[str, str]) -> str:
        reason = adopt(engine, before, living)
        if engine.skipping.skips and not reason:
            gone_on.append(len(engine.positions))
        return reason

    monkeypatch.setattr(adopting, "adopt", adopted)
    wishes = [Fault(11.2, "query-skipped", which) for which in range(3)]
    for which in (1, 2):
        faults = (Fault(7.0, "node-dies", which, 5.0), *wishes, Fault(15.5, "driver-dies"))
        outcome = run(Schedule(5, faults, recovery=GRACE, windowed=True, cpu="210m"))
        assert outcome.violation is None
    assert WHOLE in gone_on
