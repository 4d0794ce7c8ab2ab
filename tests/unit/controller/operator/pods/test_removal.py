"""The end of a topology's pods: it comes to an end, whatever machines and the API server do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.kubernetes.errors import BudgetError, ForbiddenError
from reprise.controller.kubernetes.events import Events
from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.pods.endings import OVERDUE_S
from reprise.controller.operator.pods.removal import GIVE_UP_S, Removal
from tests.support.fake_api import FakeApi

PODS = "/api/v1/namespaces/ns/pods"
ABOUT = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "name": "t", "uid": "u"}


class Cluster(FakeApi):
    """Deleted pods stay until they are forced off; `refuses` keeps them even then."""

    refuses = False

    def delete(self, path: str, uid: str | None = None, grace_s: int | None = None) -> None:
        self._write("delete", path, {"uid": uid, "grace_s": grace_s})
        if self.refuses:
            raise ForbiddenError(403, f"DELETE {path}: no right")
        if grace_s == 0:
            self.objects.pop(path, None)
        elif path in self.objects:
            self.objects[path]["metadata"] |= {
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 10,
            }  # fmt: skip

    def deletions(self) -> list[tuple[str, int | None]]:
        return [(p.rpartition("/")[2], b["grace_s"]) for v, p, b in self.calls if v == "delete"]

    def said(self) -> list[tuple[str, str]]:
        return [(b["reason"], b["message"]) for _, p, b in self.calls if "/events/" in p]


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        driver: dict[str, Any] = {"metadata": {"name": "t-driver", "uid": "d"}}
        self.api = Cluster({f"{PODS}/t-driver": driver})
        self.events = Events(self.api, "ns", ABOUT)  # type: ignore[arg-type]
        self.removal = Removal(self.api, self.events, "ns", "t", lambda: self.now)  # type: ignore[arg-type]
        self.pods: dict[str, PodView] = {
            name: PodView(name, "ns", "t", role, uid) for name, role, uid in
            (("t-driver", "driver", "d"), ("e1", "executor", "u1"), ("e2", "executor", "u2"))
        }  # fmt: skip

    def step(self, seconds: float = 1.0) -> bool:
        self.now += seconds
        done = self.removal.step(self.pods)
        for name, grace_s in self.api.deletions():
            if name in self.pods and grace_s is None:
                self.pods[name] = replace(self.pods[name], deleted_at=1.0, grace_s=10.0)
            elif name in self.pods and grace_s == 0 and not self.api.refuses:
                del self.pods[name]
        self.events.flush()
        return done

    def steps_until_done(self) -> int:
        for number in range(1, 1000):
            if self.step():
                return number
        raise AssertionError("it never ends")


def test_pods_of_lost_machines_are_forced_off_after_their_grace() -> None:
    scene = Scene()
    steps = scene.steps_until_done()
    assert scene.api.deletions() == [
        ("t-driver", None), ("t-driver", 0), ("e1", None), ("e2", None), ("e1", 0), ("e2", 0),
    ]  # fmt: skip
    assert steps <= 2 * (10 + OVERDUE_S + 5)
    assert {reason for reason, _ in scene.api.said()} == {"PodForced"}


def test_who_ends_in_time_is_not_forced() -> None:
    scene = Scene()
    assert not scene.step()
    assert not scene.step(10.0)
    scene.api.objects.clear()
    del scene.pods["t-driver"]
    assert not scene.step()
    scene.pods.clear()
    assert scene.step()
    assert [grace for _, grace in scene.api.deletions()] == [None, None, None]
    assert scene.api.said() == []


def test_what_cannot_be_removed_is_named_and_left() -> None:
    scene = Scene()
    scene.api.refuses = True
    scene.steps_until_done()
    left = [text for reason, text in scene.api.said() if reason == "PodLeft"]
    assert [text.partition(" is left behind: 403")[0] for text in left] == [
        "pod t-driver",
        "pod e1",
        "pod e2",
    ]


def test_want_of_writes_is_no_refusal() -> None:
    scene = Scene()
    scene.api.spent = True
    for _ in range(3):
        with pytest.raises(BudgetError):
            scene.step(GIVE_UP_S)
    scene.api.spent = False
    assert not scene.step()
    assert scene.api.deletions() == [("t-driver", None)]
