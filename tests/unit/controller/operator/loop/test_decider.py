"""What the coordinator of a topology is told before it looks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.loop.decider import Decider


def test_a_node_was_asked_for_when_its_pod_was_created_where_that_is_known() -> None:
    store = SimpleNamespace(requests={"gone": 1.0})
    records = SimpleNamespace(connected=False, coordinator=SimpleNamespace(store=store))
    pods = {
        name: PodView(name, "streams", "flights", "executor", f"uid-{name}", created_at=at)
        for name, at in (("x-1", 100.0), ("x-2", None))
    }
    assert Decider(cast(Any, records), cast(Any, None)).decide(pods) is None
    assert store.requests == {"x-1": 100.0}
