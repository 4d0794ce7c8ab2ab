"""An operator that is started anew and the plans that the one before has proposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.kubernetes.errors import ForbiddenError, UnknownError
from reprise.controller.kubernetes.events import Events
from reprise.controller.operator.status.approval import PlanApproval, proposal_digest
from reprise.controller.operator.status.former_proposals import FormerProposals
from reprise.scheduler.incident import Phase, PlanRecord
from tests.support.fake_api import FakeApi
from tests.unit.controller.operator.status.test_topology_status import (
    INCIDENT,
    PLAN,
    STEADY,
    decided,
    publisher,
)

OTHER = replace(PLAN, added={"count.1": "n3#1"})
SEEN = replace(STEADY, incident=INCIDENT)
PLANS = "/apis/reprise.dev/v1alpha1/namespaces/default/recoveryplans"


def operator(api: FakeApi, keep: int = 2) -> FormerProposals:
    events = Events(api, "default", {"kind": "StreamTopology", "name": "minimal", "uid": "u"})  # type: ignore[arg-type]
    one = publisher(api, keep)
    return FormerProposals(one, PlanApproval(one, events, lambda: 0.0, required=True))


def name(plan: PlanRecord) -> str:
    return f"minimal-inc-2-p1-{proposal_digest(plan)}"


def proposed(api: FakeApi, *plans: PlanRecord, state: str | None = "Proposed") -> None:
    """What an operator has made that ended then; `state`: None where it could not even say that they wait."""
    before = operator(api)
    for plan in plans:
        before.approval.permits(decided(plan))
        api.objects[f"{PLANS}/{name(plan)}"]["status"] = {"state": state} if state else {}
    api.calls.clear()


def said(api: FakeApi) -> dict[str, Any]:
    """State of each object as it was written last."""
    return {path.split("/")[-2]: body["status"]["state"] for verb, path, body in api.calls if verb == "apply"}


@pytest.mark.parametrize("state", ["Proposed", None])
def test_a_plan_that_nobody_proposes_any_more_is_superseded(state: str | None) -> None:
    api = FakeApi()
    proposed(api, PLAN, OTHER, state=state)
    after = operator(api)
    assert not after.approval.permits(decided(OTHER))
    api.calls.clear()
    after.settle(SEEN)
    assert said(api) == {name(PLAN): "Superseded"}, "the one that is proposed again waits on"
    api.calls.clear()
    after.settle(SEEN)
    assert api.calls == [], "it asks once"


def test_a_plan_whose_record_is_there_was_approved() -> None:
    """The operator ended between carrying it out and saying so."""
    api = FakeApi()
    proposed(api, PLAN)
    operator(api).settle(replace(SEEN, plans={PLAN.id: PLAN}))
    (body,) = [body for verb, _, body in api.calls if verb == "apply"]
    assert body["status"]["state"] == "Superseded"
    assert [(c["type"], c["status"]) for c in body["status"]["conditions"]] == [("Approved", "True")]


def test_they_go_with_their_incident_and_at_once_where_it_is_on_no_record() -> None:
    api = FakeApi()
    proposed(api, PLAN)
    closed = replace(INCIDENT, phase=Phase.CLOSED, closed_at=20.0)
    newer = replace(INCIDENT, id="inc-9", opened_at=30.0, plans=())
    after = operator(api, keep=1)
    later = replace(STEADY, closed={closed.id: closed}, incident=newer)
    after.settle(later)
    after.publisher.recoveries(later)
    assert f"{PLANS}/{name(PLAN)}" not in api.objects
    proposed(api, OTHER)
    operator(api).settle(replace(STEADY, incident=newer))
    assert f"{PLANS}/{name(OTHER)}" not in api.objects


def test_the_object_of_a_plan_that_was_carried_out_is_left_alone() -> None:
    api = FakeApi()
    seen = replace(SEEN, plans={PLAN.id: PLAN})
    operator(api).publisher.recoveries(seen)
    assert f"{PLANS}/minimal-inc-2-p1" in api.objects
    api.calls.clear()
    operator(api).settle(seen)
    operator(api).settle(STEADY)
    assert api.calls == []


def test_where_nobody_answers_it_asks_again() -> None:
    api = FakeApi()
    proposed(api, PLAN)
    after = operator(api)
    api.away = True
    with pytest.raises(UnknownError):
        after.settle(SEEN)
    api.away = False
    after.settle(SEEN)
    assert said(api) == {name(PLAN): "Superseded"}


def test_without_the_right_to_list_plans_everything_else_is_shown() -> None:
    """Roles that somebody else keeps (`rbac.create: false`) may be those of an earlier version."""
    api = FakeApi()
    proposed(api, PLAN)

    class Unlisted(FakeApi):
        def list(self, path: str, **_selector: str) -> list[Any]:
            raise ForbiddenError(403, path)

    refusing = Unlisted(api.objects)
    after = operator(refusing)
    after.settle(SEEN)
    after.publisher.recoveries(SEEN)
    assert "/incidents/" in "".join(refusing.objects)
    assert refusing.objects[f"{PLANS}/{name(PLAN)}"]["status"]["state"] == "Proposed", "it is left as it is"
