"""A driver is silent for the time between looks that ZooKeeper has answered, and for no other."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reprise.controller.operator.pods.driver_silence import DriverSilence


@dataclass
class Scene:
    """One operator's looks; it has a clock of its own."""

    now: float = 100.0
    silence: DriverSilence = field(init=False)

    def __post_init__(self) -> None:
        self.silence = DriverSilence(20.0, lambda: self.now)
        self.silence.follow("first")

    def look(self, report: int | None, after_s: float = 1.0) -> float:
        self.now += after_s
        self.silence.heard(report)
        return self.silence.silent_s


def test_silence_grows_from_look_to_look_and_ends_with_a_new_report() -> None:
    scene = Scene()
    assert [scene.look(5), scene.look(5), scene.look(5, 2.0), scene.look(6)] == [0.0, 1.0, 3.0, 0.0]


def test_a_gap_between_two_looks_counts_for_a_quarter_of_the_limit_at_most() -> None:
    scene = Scene()
    scene.look(5)
    assert scene.look(5, 600.0) == 5.0


def test_while_zookeeper_is_away_nobody_is_silent() -> None:
    scene = Scene()
    scene.look(5)
    scene.look(5, 4.0)
    assert scene.look(None) == 0.0
    assert scene.look(5, 4.0) == 0.0, "the first answer has nothing to be compared with"
    assert scene.look(5, 4.0) == 4.0


@pytest.mark.parametrize(
    ("reports", "reported"), [([5, 5], False), ([5, 6], True), ([0, 7], True), ([5, 0], False)]
)
def test_a_driver_has_reported_once_it_has_replaced_what_was_there(
    reports: list[int], reported: bool
) -> None:
    scene = Scene()
    for report in reports:
        scene.look(report)
    assert scene.silence.reported is reported


def test_another_driver_does_not_inherit_the_silence_of_the_one_before() -> None:
    scene = Scene()
    for _ in range(4):
        scene.look(5, 5.0)
    assert scene.silence.silent_s == 15.0
    scene.silence.follow("first")
    assert scene.silence.silent_s == 15.0
    scene.silence.follow("second")
    assert (scene.silence.silent_s, scene.silence.reported) == (0.0, False)
