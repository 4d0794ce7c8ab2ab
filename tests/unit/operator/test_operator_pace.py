"""How often one looks when there are many, and who is woken when a machine changes."""

from __future__ import annotations

import pytest

from controller.operator.pace import LONGEST_S, SHARE, SHORTEST_S, Look, Pace
from controller.operator.pods import Machine
from controller.operator.residents import MachineIndex, Residents


@pytest.mark.parametrize("look", Look)
def test_a_few_are_looked_at_as_often_as_is_useful(look: Look) -> None:
    pace = Pace()
    for _ in range(3):
        pace.enter(look)
    pace.note(look, 0.002)
    assert pace.between_s(look) == SHORTEST_S[look]


@pytest.mark.parametrize("look", Look)
def test_many_share_what_there_is(look: Look) -> None:
    pace, count, cost = Pace(), 500, 0.001
    for _ in range(count):
        pace.enter(look)
    for _ in range(200):
        pace.note(look, cost)
    between = pace.between_s(look)
    assert between == pytest.approx(min(LONGEST_S[look], count * cost / SHARE[look]), rel=0.01)
    for _ in range(count):
        pace.leave(look)
    assert pace.between_s(look) == SHORTEST_S[look]


def test_one_slow_look_does_not_slow_down_all() -> None:
    pace = Pace()
    for _ in range(300):
        pace.enter(Look.GLANCE)
    for _ in range(100):
        pace.note(Look.GLANCE, 0.001)
    before = pace.between_s(Look.GLANCE)
    pace.note(Look.GLANCE, 0.02)
    assert pace.between_s(Look.GLANCE) < 2.5 * before


def test_those_who_have_pods_on_a_machine_are_its_residents() -> None:
    residents, a, b = Residents(), ("ns", "a"), ("ns", "b")
    residents.move("p1", "m1", a)
    residents.move("p2", "m1", a)
    residents.move("p3", "m1", b)
    assert residents.of("m1") == {a, b}
    residents.move("p3", "m2", b)
    residents.move("p1", "", a)
    assert residents.of("m1") == {a}
    assert residents.of("m2") == {b}
    residents.move("p2", "", a)
    assert residents.of("m1") == frozenset()
    residents.move("unknown", "", a)


def test_the_index_of_machines_is_read_where_it_is() -> None:
    index = {"m1": [Machine("m1", True, True)]}
    machines = MachineIndex(index)
    assert machines["m1"].ready
    assert machines.get("m2") is None
    index["m2"] = [Machine("m2", False, True)]
    assert list(machines) == ["m1", "m2"]
    assert len(machines) == 2
