"""What a decision is made of, where the spec and the driver that runs do not agree; and in what order records stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.controller.status import document
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.scheduler import Incident, Kind, Phase, PlanRecord
from reprise.scheduler.incident import Trigger
from tests.support import oncall


@pytest.mark.parametrize("spec", [True, False])
@pytest.mark.parametrize("driver", [True, False])
def test_a_driver_whose_replays_differ_is_believed_while_the_spec_is_that_of_its_successor(
    spec: bool, driver: bool
) -> None:
    """A loss while the stream drains before the change of `batch.order` to aligned takes everything back: the driver would
    refuse anything else, and rows of a replay by part of it would not be those that are shown."""
    view = replace(view_of(oncall.resource()), deterministic=spec)
    seen = oncall.steady()
    assert seen.progress is not None and seen.progress.deterministic
    seen = replace(seen, progress=replace(seen.progress, deterministic=driver))
    assert snapshot_of(view, seen).topology.deterministic == (spec and driver)
    assert snapshot_of(view, replace(seen, progress=None)).topology.deterministic == spec


def test_the_newest_incident_and_plan_are_those_of_the_greatest_number() -> None:
    """The coordinator that opened the second has a clock that is behind."""
    first = Incident("inc-000003", Kind.CORRELATED, Phase.CLOSED, 900.0, 0, 1, 3, 900.0, closed_at=950.0)
    second = replace(first, id="inc-000008", opened_at=400.0, closed_at=450.0)
    plan = PlanRecord("inc-000008-p9", second.id, 400.0, Trigger.FIRST, False, 0, 1, {}, (), {}, {}, 0.0, {})
    tenth = replace(plan, id="inc-000008-p10")
    seen = Observation(
        1000.0, closed={one.id: one for one in (second, first)}, plans={one.id: one for one in (tenth, plan)}
    )
    assert [incident.id for incident in seen.incidents] == ["inc-000003", "inc-000008"]
    assert seen.newest_plan == tenth
    last = document(oncall.TOPOLOGY, seen).last_incident
    assert last is not None and last.id == "inc-000008"


def test_the_open_incident_is_the_newest_whatever_its_number() -> None:
    """Its number is lower where records were lost."""
    closed = Incident("inc-000009", Kind.CORRELATED, Phase.CLOSED, 900.0, 0, 1, 3, 900.0, closed_at=950.0)
    opened = replace(closed, id="inc-000001", phase=Phase.SETTLING, opened_at=980.0, closed_at=None)
    seen = Observation(1000.0, closed={closed.id: closed}, incident=opened)
    assert seen.incidents == [closed, opened]
    again = replace(seen, closed={closed.id: closed, opened.id: replace(opened, closed_at=990.0)})
    assert again.incidents == [closed, opened], "it stands there once, as it is"
