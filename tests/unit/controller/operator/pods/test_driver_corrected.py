"""A spec whose driver cannot start, or cannot drain, can be corrected; a stream that is not drained stays with its code."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.controller.kubernetes.pods import PodView, pod_view
from reprise.controller.operator.pods.drain import PATIENCE_S, Drain
from reprise.controller.operator.pods.driver import DriverKeeper
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import Spec
from reprise.spark_jobs.topology import StreamTopology
from tests.support.fake_api import FakeApi
from tests.unit.controller.operator.pods.test_keepers import (
    PODS,
    SETTINGS,
    WELL,
    Asked,
    Clock,
    changed,
    clock,
    driver_of,
    image_of,
    keeper,
    reasons,
    reports,
    seen,
    topology,
)

__all__ = ["clock"]
TYPO, GOOD = changed("ap:1"), changed("app:2")
NOTHING = Observation(0.0, connected=True)
"""No driver has ever reported."""


class Scene:
    """One topology's driver as an operator sees it."""

    def __init__(self, clock: Clock, now: Observation) -> None:
        self.api, self.clock, self.book = FakeApi(), clock, Asked(now)
        self.one: DriverKeeper = keeper(self.api, clock)
        self.one.drain = Drain(self.book, self.one.events, clock)

    def look(
        self, wanted: StreamTopology, phase: str = "", recovering: bool = False, uid: str = "pod-uid"
    ) -> None:
        """One look; `phase`: of the pod that is there, if it is."""
        made = self.api.objects.get(f"{PODS}/minimal-driver")
        pod: PodView | None = None
        if made is not None and phase:
            made["metadata"]["uid"] = uid
            pod = pod_view({**made, "status": {"phase": phase}})
        self.one.look(wanted, pod, WELL, recovering=recovering, seen=self.book.now)

    @property
    def there(self) -> bool:
        return f"{PODS}/minimal-driver" in self.api.objects

    def said(self, reason: str) -> str:
        """The messages of the Events of this kind."""
        return " ".join(
            b["message"] for _, p, b in self.api.calls if "/events/" in p and b["reason"] == reason
        )


@pytest.mark.parametrize("now", [NOTHING, seen("1", drained=40)])
@pytest.mark.parametrize("recovering", [False, True])
def test_a_driver_that_never_ran_is_replaced_at_once(
    clock: Clock, now: Observation, recovering: bool
) -> None:
    """The image of the first spec, or of one that followed a drained driver, has a typo: its pod stays Pending."""
    scene = Scene(clock, now)
    scene.look(TYPO)
    assert image_of(scene.api) == "ap:1"
    clock.now += 60.0
    scene.look(GOOD, "Pending", recovering=recovering)
    assert not scene.there
    scene.look(GOOD, recovering=recovering)
    assert image_of(scene.api) == "app:2"
    assert not scene.book.drivers, "nobody is asked: the driver of the last report is not there any more"


@pytest.mark.parametrize("now", [NOTHING, seen("1", drained=40)])
def test_a_driver_that_ends_before_it_has_reported_is_followed_by_the_corrected_one(
    clock: Clock, now: Observation
) -> None:
    scene = Scene(clock, now)
    scene.look(TYPO)
    clock.now += 60.0
    scene.look(GOOD, "Failed")
    clock.now += 60.0
    scene.look(GOOD)
    assert image_of(scene.api) == "app:2"
    assert scene.book.spec == Spec(GOOD.document, "app:2")


def test_the_former_spec_that_waits_for_a_machine_is_left_to_wait_and_the_way_out_is_named(
    clock: Clock,
) -> None:
    """It alone can drain; ended each time it is seen Pending, it would never come to run."""
    scene = Scene(clock, seen("1"))
    scene.book.spec = Spec(topology().document, SETTINGS.image)
    scene.look(GOOD)
    assert image_of(scene.api) == SETTINGS.image
    assert "`upgrade: replay`" in scene.said("FormerSpecStarted")
    clock.now += 60.0
    scene.look(GOOD, "Pending")
    assert scene.there
    assert "pod is Pending" in scene.one.problem
    clock.now += PATIENCE_S + 1.0
    scene.look(GOOD, "Pending")
    assert scene.there
    assert "`upgrade: replay`" in scene.one.problem
    assert "`upgrade: replay`" in scene.said("DrainWaits")
    scene.look(topology(upgrade="replay", kubernetes={"image": "app:2"}), "Pending")
    assert not scene.there


@pytest.mark.parametrize("recovering", [False, True])
def test_a_driver_that_reports_and_ends_again_and_again_names_the_way_out_at_each_end(
    clock: Clock, recovering: bool
) -> None:
    """No drain lasts for long enough to be said to wait, and none is ever complete."""
    scene = Scene(clock, seen("1"))
    scene.book.spec = Spec(topology().document, SETTINGS.image)
    for life in range(2, 5):
        scene.look(GOOD, recovering=recovering)
        assert image_of(scene.api) == SETTINGS.image, "it alone can drain"
        scene.book.now = seen(str(life))
        scene.one.silence.heard(2 * life)
        clock.now += 5.0
        scene.one.silence.heard(2 * life + 1)
        scene.look(GOOD, "Running", recovering, f"pod-{life}")
        running = scene.one.problem
        clock.now += 20.0
        scene.look(GOOD, "Failed", recovering, f"pod-{life}")
        assert "`upgrade: replay`" in scene.one.problem
        assert "`upgrade: replay`" in scene.said("DriverEnded")
        scene.look(GOOD, recovering=recovering)
        assert "ended" in scene.one.problem and "`upgrade: replay`" in scene.one.problem
        clock.now += 60.0
    assert "`upgrade: replay`" in running, "also while it runs"
    scene.look(topology(upgrade="replay", kubernetes={"image": "app:2"}), recovering=recovering)
    assert image_of(scene.api) == "app:2"


def test_a_driver_that_ends_before_anything_was_released_names_no_way_out(clock: Clock) -> None:
    scene = Scene(clock, NOTHING)
    scene.look(TYPO)
    scene.look(GOOD, "Failed")
    assert "upgrade" not in scene.one.problem


@pytest.mark.parametrize("now", [True, False])
def test_in_a_recovery_a_driver_that_runs_is_not_said_to_be_starting(clock: Clock, now: bool) -> None:
    scene = Scene(clock, seen("1"))
    scene.look(topology())
    assert scene.one.problem == "the driver is starting"
    scene.look(GOOD if now else topology(batch={"interval": "9s"}), "Running", recovering=True)
    assert scene.one.problem == ""


def test_a_report_of_an_earlier_driver_is_not_taken_for_that_of_the_one_that_starts(clock: Clock) -> None:
    """The pod runs, and its driver has not reported: what is there is the last word of the one that has drained."""
    for last in (seen("1", drained=40), seen("1")):
        scene = Scene(clock, last)
        scene.look(TYPO)
        clock.now += 60.0
        for _ in range(2):
            scene.look(GOOD, "Running")
            assert not scene.book.drivers
            assert "has not reported yet" in scene.one.problem
            clock.now += PATIENCE_S + 1.0
        assert scene.there, "a driver that runs is never forced"
        assert "has not reported yet" in scene.said("DrainWaits")
        scene.book.now = seen("2")
        scene.one.silence.heard(7)
        scene.one.silence.heard(8)
        scene.look(GOOD, "Running")
        assert scene.book.drivers == ["2"]


def test_the_way_out_of_a_drain_that_takes_long_is_named(clock: Clock) -> None:
    """Such as with a sink that takes nothing, where no checkpoint can be complete."""
    scene = Scene(clock, seen())
    scene.look(TYPO)
    reports(scene.one, driver_of(TYPO))
    clock.now += 60.0
    for waited in (0.0, PATIENCE_S - 1.0):
        clock.now += waited
        scene.look(GOOD, "Running")
        assert "replay" not in scene.one.problem
        assert "DrainWaits" not in reasons(scene.api)
    clock.now += 2.0
    scene.look(GOOD, "Running")
    assert "the last checkpoint" in scene.one.problem
    assert "`upgrade: replay`" in scene.one.problem
    assert "`upgrade: replay`" in scene.said("DrainWaits")


def test_a_recovery_that_cannot_end_does_not_hold_up_a_change_that_is_asked_to_replay(clock: Clock) -> None:
    """A recovery ends with a checkpoint; where the former code prevents every one, the new code would wait for ever."""
    scene = Scene(clock, seen())
    scene.look(TYPO)
    reports(scene.one, driver_of(TYPO))
    clock.now += 60.0
    scene.look(GOOD, "Running", recovering=True)
    assert scene.there
    assert "`upgrade: replay`" in scene.said("SpecChangePostponed")
    scene.look(
        topology(upgrade="replay", batch={"interval": "9s"}, kubernetes={"image": "ap:1"}), "Running", True
    )
    assert scene.there, "the same output: no reason to disturb a recovery"
    scene.look(topology(upgrade="replay", kubernetes={"image": "app:2"}), "Running", recovering=True)
    assert not scene.there


@pytest.mark.parametrize("last", [NOTHING, seen("1"), seen("1", drained=40)])
def test_no_changed_spec_is_started_on_what_may_be_old(clock: Clock, last: Any) -> None:
    """A driver may have begun, and released batches, since ZooKeeper was read; a spec that the store then refuses would
    stand on record in place of the one that can go on."""
    scene = Scene(clock, seen("2"))
    before = scene.book.spec = Spec(topology().document, SETTINGS.image)
    scene.one.look(GOOD, None, WELL, recovering=False, seen=last)
    assert image_of(scene.api) == SETTINGS.image
    unreadable = Scene(clock, Observation(0.0, connected=True, report=77))
    unreadable.book.spec = before
    unreadable.one.look(GOOD, None, WELL, recovering=False, seen=last)
    assert image_of(unreadable.api) == SETTINGS.image
    away = Scene(clock, Observation(0.0, progress=last.progress))
    away.book.spec = before
    away.one.look(GOOD, None, WELL, recovering=False, seen=last)
    assert not away.there
    assert "ZooKeeper does not answer" in away.one.problem
    assert away.book.spec == unreadable.book.spec == scene.book.spec == before
