"""One Event a transition, one object for what is said again, and requests that failed are counted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.crd.base import TopologyReference
from reprise.controller.kubernetes import api as real
from reprise.controller.kubernetes import events as module
from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.errors import BudgetError, ConflictError, UnknownError
from reprise.controller.kubernetes.events import AGAIN_S, EventReason, Events
from reprise.controller.operator.status import reporter
from reprise.controller.operator.status.publisher import ObjectPublisher
from reprise.controller.operator.status.reporter import StatusReporter
from reprise.controller.operator.status.topology_status import condition_updates
from reprise.scheduler import Incident, Kind, Phase
from tests.support.fake_api import FakeApi
from tests.unit.controller.operator.status.test_topology_status import STEADY, situation

ABOUT = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "name": "minimal", "uid": "u-1"}
INCIDENT = Incident("inc-000002", Kind.CORRELATED, Phase.SETTLING, 100.0, 4, 2, 3, 101.0)
PHASES = (Phase.SETTLING, Phase.WAITING, Phase.RECOVERING, Phase.VERIFYING)


def teller(api: FakeApi) -> StatusReporter:
    events = Events(api, "default", ABOUT)  # type: ignore[arg-type]
    publisher = ObjectPublisher(api, "default", TopologyReference(name="minimal", uid="u-1"), {}, ABOUT, 5)  # type: ignore[arg-type]
    return StatusReporter.of(api, "minimal", publisher, events)  # type: ignore[arg-type]


def said(api: FakeApi) -> list[tuple[str, int]]:
    return [(body["reason"], body["count"]) for _, path, body in api.calls if "/events/" in path]


def test_an_incident_is_one_event_a_transition_however_often_it_is_looked_at() -> None:
    api = FakeApi()
    one = teller(api)
    seen = [replace(STEADY, incident=replace(INCIDENT, phase=phase)) for phase in PHASES]
    for look in (STEADY, *seen, STEADY):
        for _ in range(50):
            one._announce(condition_updates(situation(look)))
    reasons = [reason for reason, _ in said(api)]
    assert [r for r in reasons if r in {"Settling", "Waiting", "Recovering", "Verifying", "NoIncident"}] == [
        "Settling", "Waiting", "Recovering", "Verifying", "NoIncident",
    ]  # fmt: skip
    assert len(reasons) == len(set(reasons))


def test_an_operator_that_starts_in_the_middle_tells_what_is_wrong_and_not_what_is_well() -> None:
    api = FakeApi()
    teller(api)._announce(condition_updates(situation(replace(STEADY, incident=INCIDENT))))
    assert said(api) == [("Settling", 1)]


def test_what_is_said_again_counts_up_in_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    api, now = FakeApi(), 1_760_000_000.0
    events = Events(api, "default", ABOUT)  # type: ignore[arg-type]
    monkeypatch.setattr(module.time, "time", lambda: now)
    for _ in range(5):
        events.say(EventReason.DRIVER_ENDED, "exit code 1", warning=True)
    now += AGAIN_S
    events.say(EventReason.DRIVER_ENDED, "exit code 1", warning=True)
    assert said(api) == [("DriverEnded", 1), ("DriverEnded", 6)]  # those between are counted, too
    first, second = (body for _, _, body in api.calls)
    assert first["metadata"]["name"] == second["metadata"]["name"]
    assert first["firstTimestamp"] == second["firstTimestamp"] < second["lastTimestamp"]
    events.say(EventReason.DRIVER_ENDED, "exit code 2", warning=True)
    assert api.calls[-1][2]["metadata"]["name"] != first["metadata"]["name"]


def test_requests_that_fail_are_counted_by_reason_and_a_spent_budget_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Any] = [
        ConflictError(409, "x"),
        UnknownError("no answer"),
        UnknownError("429"),
        BudgetError("spent"),
    ]

    def refuse(*_: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(Api, "_ask", refuse)
    one = Api(WriteBudget(5), real.Configuration())
    for _ in range(4):
        with pytest.raises((ConflictError, UnknownError, BudgetError)):
            one.get("/api/v1/pods")
    assert one.refused == {"conflict": 1, "unknown": 2}


def test_code_that_raised_and_jobs_that_fail_for_ever_are_one_event_each_and_name_the_culprit() -> None:
    api = FakeApi()
    one = teller(api)
    why = Failure.parse(
        "poison: operator parser, partition parser.0, batch 1: RoutingError: key column 'tagg' is not there"
    )
    progress = STEADY.progress
    assert progress is not None
    ill = replace(
        progress,
        failed={"parser.0": why, "count.0": Failure.parse("node lost")},
        stuck="5 jobs in a row have failed",
    )
    for look in (STEADY, *[replace(STEADY, progress=ill)] * 3):
        one._name_culprits(look)
    one._name_culprits(replace(STEADY, progress=replace(ill, stuck="6 jobs in a row have failed")))
    one.events.flush()
    assert said(api) == [("PartitionSetAside", 1), ("JobsFail", 1)]
    assert api.calls[0][2]["message"] == f"parser.0: {why}"
    assert api.calls[0][2]["type"] == "Warning"


def test_what_the_driver_reports_is_an_event_the_newest_and_not_each(monkeypatch: pytest.MonkeyPatch) -> None:
    api, now = FakeApi(), [100.0]
    monkeypatch.setattr(reporter, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0]))
    one = teller(api)
    other = "node at 10.0.0.7 is not ready: driver and executors must run the same image"
    for problems in (
        (other,),
        (other,),
        (other, "checkpoint 5 waits 3 s"),
        (other, "checkpoint 5 waits 4 s"),
    ):
        one._name_culprits(replace(STEADY, problems=problems))
    now[0] += reporter.PROBLEM_S
    one._name_culprits(replace(STEADY, problems=(other, "checkpoint 5 waits 40 s")))
    one.events.flush()
    messages = [body["message"] for _, _, body in api.calls]
    assert messages == [other, "checkpoint 5 waits 40 s"]
    assert {body["reason"] for _, _, body in api.calls} == {"DriverProblem"}
    poison = Failure.parse("poison: operator bad: ValueError")
    ill = replace(STEADY.progress, failed={"bad.0": poison})  # type: ignore[type-var]
    now[0] += reporter.PROBLEM_S
    one._name_culprits(replace(STEADY, progress=ill, problems=(f"bad.0: {poison}",)))
    one.events.flush()
    assert said(api)[-1] == ("PartitionSetAside", 1), "said once, by the Event that has its own name"
