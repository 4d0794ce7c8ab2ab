"""A node whose agent has lost its session stands while the driver hears it; one that is dead goes as fast as ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.coordinator.suspects import Suspects
from reprise.scheduler.model import Desired, Node, Progress

LIMIT_S = 5.0
ONE, TWO = Node("n1", 1, 1000), Node("n2", 1, 1000)
WANTED = Desired(4, 1, 0, "1", {"source.0": "n1#1", "sink.0": "n2#1"})
REPORT = Progress(
    "1", seq=4, generation=1, nodes=frozenset({"n1#1", "n2#1"}), positions={"source.0": 9, "sink.0": 9}
)


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.suspects = Suspects(LIMIT_S, lambda: self.now)
        assert self.look(ONE, TWO) == ["n1#1", "n2#1"]

    def look(
        self, *alive: Node, report: Progress | None = REPORT, wanted: Desired | None = WANTED
    ) -> list[str]:
        return [node.id for node in self.suspects.add(alive, wanted, report)]


def test_a_node_that_the_driver_hears_stands_and_is_itself_again_when_its_agent_is_back() -> None:
    scene = Scene()
    assert scene.look(ONE) == ["n1#1", "n2#1"]
    assert scene.suspects.doubtful
    scene.now += LIMIT_S - 0.1
    assert scene.look(ONE) == ["n1#1", "n2#1"]
    assert scene.look(ONE, TWO) == ["n1#1", "n2#1"]
    assert not scene.suspects.doubtful
    scene.now += LIMIT_S  # counted anew
    assert scene.look(ONE) == ["n1#1", "n2#1"]


def test_it_does_not_stand_for_longer_than_the_limit_and_does_not_rise_again() -> None:
    scene = Scene()
    scene.look(ONE)
    scene.now += LIMIT_S
    assert scene.look(ONE) == ["n1#1"]
    assert scene.look(ONE) == ["n1#1"]


@pytest.mark.parametrize(
    "report",
    [
        None,
        replace(REPORT, nodes=frozenset({"n1#1"})),  # the driver has dropped it: its executor is gone
        replace(REPORT, failed={"sink.0": Failure.parse("node lost")}, positions={"source.0": 9}),
        replace(REPORT, positions={"source.0": 9}),  # what is placed there is still being restored
        replace(REPORT, seq=3),  # of before the newest desired state
        replace(REPORT, driver="2"),  # a new driver, which has no state
    ],
)
def test_who_is_not_heard_is_lost_at_once(report: Progress | None) -> None:
    scene = Scene()
    assert scene.look(ONE, report=report) == ["n1#1"]
    assert scene.look(ONE) == ["n1#1"], "what is lost does not come back by being heard"


def test_another_incarnation_takes_its_place() -> None:
    scene = Scene()
    again = replace(TWO, incarnation=2)
    assert scene.look(ONE, again) == ["n1#1", "n2#2"]


def test_a_node_where_nothing_runs_is_not_spared() -> None:
    scene = Scene()
    assert scene.look(ONE, wanted=replace(WANTED, assignment={"source.0": "n1#1", "sink.0": "n1#1"})) == [
        "n1#1"
    ]


def test_after_a_reconnection_nobody_stands() -> None:
    scene = Scene()
    scene.suspects.forget()
    assert scene.look(ONE) == ["n1#1"]


def test_a_node_that_was_fenced_does_not_stand_although_the_driver_still_hears_it() -> None:
    scene = Scene()
    scene.suspects.gone("n2")
    assert scene.look(ONE) == ["n1#1"]
    other = Scene()
    assert other.look(ONE) == ["n1#1", "n2#1"], "it stands already"
    other.suspects.gone("n2")
    assert not other.suspects.doubtful, "at once"
    assert other.look(ONE) == ["n1#1"]
    assert not other.suspects.doubtful


def test_a_node_that_is_fenced_gives_no_other_node_more_time() -> None:
    scene = Scene()
    scene.look(ONE)
    scene.now += LIMIT_S - 0.1
    scene.suspects.gone("n1")
    assert scene.suspects.doubtful
    scene.now += 0.2
    assert scene.look(ONE) == ["n1#1"]


def test_a_node_that_has_all_that_is_at_work_stands_as_well() -> None:
    scene = Scene()
    everything = replace(WANTED, assignment=dict.fromkeys(("source.0", "sink.0"), "n2#1"))
    assert scene.look(ONE, wanted=everything) == ["n1#1", "n2#1"]
