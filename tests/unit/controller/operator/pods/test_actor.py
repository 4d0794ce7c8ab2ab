"""What the keeper of a driver is told of the pods beside it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.pods.actor import Actor
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.pods.witness import PodVerdicts
from tests.support.fake_api import FakeApi
from tests.unit.controller.operator.pods.test_keepers import driver_of, topology


class Keeper:
    drain: Any = None
    pods_wait = False

    def look(self, *_: Any) -> None:
        self.waited = self.pods_wait


@pytest.mark.parametrize(("phase", "waits"), [("Pending", True), ("Running", False)])
def test_executors_that_do_not_start_may_want_their_user_s_secret(phase: str, waits: bool) -> None:
    resource, keeper = topology(), Keeper()
    driver = driver_of(resource)
    pods: dict[str, PodView] = {
        "minimal-driver": driver,
        "e-1": replace(driver, name="e-1", role="executor", phase="Running"),
        "e-2": replace(driver, name="e-2", role="executor", phase=phase),
    }
    records = SimpleNamespace(connected=False, last=None)
    events: Any = SimpleNamespace(say=lambda *_, **__: None, note=lambda *_, **__: None)
    actor = Actor(FakeApi(), events, records, keeper, SimpleNamespace())  # type: ignore[arg-type]
    actor.act(resource, ClusterView(pods, None), PodVerdicts(), recovering=False)
    assert keeper.waited is waits
