"""What the status of a topology claims, and that it is written no more often than it changes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from reprise.algorithms.failure import Failure
from reprise.controller.cli.status_page import status_page
from reprise.controller.crd.base import MAX_LISTED, TopologyReference
from reprise.controller.crd.topology_status import TopologyStatus
from reprise.controller.kubernetes.errors import ForbiddenError
from reprise.controller.kubernetes.events import Events
from reprise.controller.operator.pods.verdict import State, Verdict
from reprise.controller.operator.pods.witness import PodVerdicts
from reprise.controller.operator.status.approval import ASK_S, PlanApproval, proposal_digest
from reprise.controller.operator.status.publisher import ObjectPublisher
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.operator.status.topology_status import condition_updates, status_of
from reprise.controller.status import document
from reprise.controller.status.query_state import run_state
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import (
    AddPlan,
    Decision,
    Desired,
    Incident,
    Kind,
    LostNode,
    Node,
    Outcome,
    Phase,
    PlanRecord,
    Progress,
    WriteIncident,
)
from reprise.scheduler.domains import Losses
from reprise.scheduler.incident import Trigger
from reprise.scheduler.model import SkipWish
from reprise.scheduler.wishes import annotated
from reprise.spark_jobs.topology import expand, from_json, override
from reprise.spark_jobs.topology.resource import SinkSpec
from tests.support import recorded_sizes
from tests.support.fake_api import FakeApi

EXAMPLE = Path(__file__).parents[5] / "examples" / "minimal.yaml"
RESOURCE = from_json(json.dumps(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))))
TOPOLOGY = expand(RESOURCE)
PARTITIONS = list(TOPOLOGY.partitions)
NODES = {f"n{i}#1": Node(f"n{i}", 1, 100) for i in (1, 2, 3)}
STEADY = Observation(
    time=10.0,
    connected=True,
    nodes=NODES,
    progress=Progress("1", 1, 1, frozenset(NODES), dict.fromkeys(PARTITIONS, 8), horizon=9, checkpoint=5),
    desired=Desired(1, 1, 0, "1", dict.fromkeys(PARTITIONS, "n1#1")),
)
INCIDENT = Incident(
    "inc-2", Kind.CORRELATED, Phase.RECOVERING, 11.0, 5, 2, 3, 12.0,
    lost=(LostNode("n1#1", 11.0), LostNode("n2#1", 11.1)), plans=("inc-2-p1",),
)  # fmt: skip
PLAN = PlanRecord(
    "inc-2-p1", "inc-2", 12.0, Trigger.FIRST, True, 5, 2, {"n3#1": 80}, (), {"algorithm": "dp", "value": 5},
    {"count.0": "n3#1"}, 0.01, {"count.1": "needs 40 more than is left"},
)  # fmt: skip


def situation(seen: Observation | None = STEADY, **more: Any) -> TopologyState:
    state = None if seen is None else run_state(TOPOLOGY, seen)
    return TopologyState(
        generation=3, resource=RESOURCE, state=state, root="/reprise/default/minimal", **more
    )


def truths(now: TopologyState) -> dict[str, tuple[str, str]]:
    return {claim.type: (claim.truth.value, claim.reason) for claim in condition_updates(now)}


def test_all_is_well() -> None:
    found = truths(situation())
    assert found["Ready"] == ("True", "AllQueriesAvailable")
    assert found["Recovering"] == ("False", "NoIncident")
    assert found["Degraded"][0] == found["Paused"][0] == "False"
    assert found["Valid"][0] == found["Observed"][0] == "True"


def test_queries_that_are_down_degrade() -> None:
    seen = replace(STEADY, nodes={}, incident=INCIDENT, plans={PLAN.id: PLAN})
    found = truths(situation(seen))
    assert found["Ready"] == ("False", "QueriesDown")
    assert found["Degraded"] == ("True", "QueriesDown")
    assert found["Recovering"] == ("True", "Recovering")


def test_what_zookeeper_does_not_say_is_unknown_and_not_false() -> None:
    found = truths(situation(replace(STEADY, connected=False)))
    assert {found[kind][0] for kind in ("Ready", "Recovering", "Degraded")} == {"Unknown"}
    assert found["Observed"][0] == "False"


def test_a_refused_spec_says_so_and_the_old_one_goes_on() -> None:
    found = truths(situation(invalid="spec.batch: bad"))
    assert found["Valid"] == ("False", "SpecRefused")
    assert found["Ready"][0] == "True"


def test_a_start_says_what_it_waits_for() -> None:
    pending = {"e1": Verdict(State.PENDING, "Unschedulable: 0/3 nodes are available")}
    starting = replace(STEADY, desired=None)
    ready = next(
        c for c in condition_updates(situation(starting, findings=PodVerdicts(pending))) if c.type == "Ready"
    )
    assert ready.reason == "Starting"
    assert "0/3 nodes are available" in ready.message
    held_up = {"e1": Verdict(State.STARTING, 'CreateContainerConfigError: secret "a" not found')}
    ready = next(
        c for c in condition_updates(situation(starting, findings=PodVerdicts(held_up))) if c.type == "Ready"
    )
    assert ready.message == '1 executor pods do not start: CreateContainerConfigError: secret "a" not found'
    alive = {"e1": Verdict(State.ALIVE), "e2": Verdict(State.STARTING, "ContainerCreating")}
    ready = next(
        c for c in condition_updates(situation(starting, findings=PodVerdicts(alive))) if c.type == "Ready"
    )
    assert ready.message == "1 of 3 nodes are there"


@pytest.mark.parametrize("desired", [None, STEADY.desired])
def test_what_the_driver_reports_stands_beside_what_is_not_there(desired: Desired | None) -> None:
    """Executors of another image: they are alive, and the driver has no use for them."""
    problem = "node at 10.0.0.7 is not ready: driver and executors must run the same image"
    seen = replace(
        STEADY, nodes={}, desired=desired, incident=INCIDENT if desired else None, problems=(problem,)
    )
    claims = {c.type: c for c in condition_updates(situation(seen))}
    assert claims["Ready"].truth.value == "False"
    assert claims["Ready"].message.endswith(f"; the driver's newest problem: {problem}")
    if desired is not None:
        assert claims["Degraded"].message == claims["Ready"].message


def test_the_status_fits_its_schema_and_keeps_times() -> None:
    status, _ = status_of(situation(driver="minimal-driver", coordinator="op-1"), {}, moment=100.0)
    TopologyStatus.model_validate(status)
    assert status["queries"]["summary"] == "2/2"
    assert status["nodes"]["summary"] == "3/3"
    assert status["startedAt"].startswith("1970-01-01T00:01:40")
    later, _ = status_of(situation(driver="minimal-driver", coordinator="op-1"), status, moment=200.0)
    assert later == status


@pytest.mark.parametrize("parallelism", [300, 1000])
def test_the_status_of_a_large_topology_is_small_and_says_how_much_it_leaves_out(parallelism: int) -> None:
    """All of 3,000 or 10,000 partitions are lost, with a reason of any length for each query."""
    resource = recorded_sizes.resource(9, parallelism, 20, parallelism)
    topology = expand(resource)
    why = dict.fromkeys(topology.queries, "because " * 200)
    seen = Observation(
        time=10.0,
        connected=True,
        progress=Progress(
            "1", 1, 1, failed=dict.fromkeys(topology.order, Failure.parse("node lost")), horizon=9
        ),
        desired=Desired(1, 1, 0, "1", dict.fromkeys(topology.order, "n9#1")),
        incident=INCIDENT,
        plans={PLAN.id: replace(PLAN, left_out=why, added={})},
    )
    now = TopologyState(
        generation=3, resource=resource, state=run_state(topology, seen), root="/reprise/x/big"
    )
    status, _ = status_of(now, {}, moment=100.0)
    TopologyStatus.model_validate(status)
    assert len(json.dumps(status)) < 64_000
    assert (len(status["waiting"]), status["waitingTotal"]) == (50, parallelism)
    assert status["partitions"] == len(topology.partitions)


def test_nothing_is_forgotten_while_nothing_is_seen() -> None:
    status, _ = status_of(situation(), {}, moment=100.0)
    blind, _ = status_of(situation(None, problem="away"), status, moment=200.0)
    assert blind["queries"] == status["queries"]
    assert blind["startedAt"] == status["startedAt"]


def publisher(api: FakeApi, keep: int = 2) -> ObjectPublisher:
    reference, owner = (
        TopologyReference(name="minimal", uid="u"),
        {"kind": "StreamTopology", "name": "minimal"},
    )
    return ObjectPublisher(api, "default", reference, {"count.0": 5, "count.1": 1}, owner, keep)  # type: ignore[arg-type]


def test_an_incident_and_its_plan_are_written_once() -> None:
    api = FakeApi()
    one = publisher(api)
    seen = replace(STEADY, incident=INCIDENT, plans={PLAN.id: PLAN})
    for _ in range(5):
        one.recoveries(seen)
    base = "/apis/reprise.dev/v1alpha1/namespaces/default"
    assert [(verb, path.removeprefix(base)) for verb, path, _ in api.calls] == [
        ("create", "/incidents/minimal-inc-2"),
        ("apply", "/incidents/minimal-inc-2/status"),
        ("create", "/recoveryplans/minimal-inc-2-p1"),
        ("apply", "/recoveryplans/minimal-inc-2-p1/status"),
    ]


def test_an_operator_that_was_started_anew_takes_objects_as_they_are() -> None:
    api = FakeApi()
    seen = replace(STEADY, incident=INCIDENT, plans={PLAN.id: PLAN})
    publisher(api).recoveries(seen)
    publisher(api).recoveries(seen)
    assert [verb for verb, path, _ in api.calls if verb == "create"] == ["create", "create"]


@pytest.mark.parametrize("operator", ["the same", "started anew"])
def test_where_records_were_lost_and_numbers_come_again_the_new_incident_is_shown(operator: str) -> None:
    """The objects of the one before were over, and say nothing of this one."""
    api = FakeApi()
    closed = replace(INCIDENT, phase=Phase.CLOSED, closed_at=20.0)
    one = publisher(api)
    one.recoveries(replace(STEADY, closed={closed.id: closed}, plans={PLAN.id: PLAN}))
    for path, status in (("incidents", {"phase": "closed"}), ("recoveryplans", {"state": "Done"})):
        (where,) = (known for known in api.objects if f"/{path}/" in known)
        api.objects[where]["status"] = status
    if operator == "started anew":
        one = publisher(api)
        one.recoveries(replace(STEADY, closed={closed.id: closed}, plans={PLAN.id: PLAN}))
    told = len(api.calls)
    later, plan = replace(INCIDENT, opened_at=500.0), replace(PLAN, time=501.0)
    for _ in range(2):
        one.recoveries(replace(STEADY, incident=later, plans={plan.id: plan}))
    assert [
        (verb, path.rpartition("v1alpha1/namespaces/default")[2]) for verb, path, _ in api.calls[told:]
    ] == [
        ("delete", "/incidents/minimal-inc-2"),
        ("create", "/incidents/minimal-inc-2"),
        ("apply", "/incidents/minimal-inc-2/status"),
        ("delete", "/recoveryplans/minimal-inc-2-p1"),
        ("create", "/recoveryplans/minimal-inc-2-p1"),
        ("apply", "/recoveryplans/minimal-inc-2-p1/status"),
    ]
    shown = next(b for v, p, b in api.calls[told:] if v == "apply" and "/incidents/" in p)
    assert shown["status"]["phase"] == "recovering"
    assert {c["type"]: c["status"] for c in shown["status"]["conditions"]}["Closed"] == "False"


def test_a_status_that_stands_already_is_not_written() -> None:
    api = FakeApi()
    publisher(api).status({"position": 1}, stands={"position": 1})
    assert api.calls == []


def test_a_closed_incident_is_written_a_last_time_and_old_ones_go() -> None:
    api = FakeApi()
    one = publisher(api, keep=1)
    closed = replace(INCIDENT, phase=Phase.CLOSED, closed_at=20.0)
    one.recoveries(replace(STEADY, closed={closed.id: closed}, plans={PLAN.id: PLAN}))
    last = [b for v, p, b in api.calls if v == "apply" and "incidents" in p][-1]
    conditions = {c["type"]: c["status"] for c in last["status"]["conditions"]}
    assert conditions == {"Correlated": "True", "Restored": "True", "Closed": "True"}
    newer = replace(INCIDENT, id="inc-9", opened_at=30.0, plans=())
    one.recoveries(replace(STEADY, closed={closed.id: closed}, incident=newer, plans={PLAN.id: PLAN}))
    assert not any("inc-2" in path for path in api.objects)


def test_what_another_driver_reports_restores_nothing() -> None:
    """Numbers of what is desired begin anew where records were lost: a driver before it knows nothing of a plan."""
    assert STEADY.progress is not None
    for driver, state in (("0", "Executing"), ("1", "Done")):
        api = FakeApi()
        progress = replace(STEADY.progress, driver=driver, seq=5)
        publisher(api).recoveries(
            replace(STEADY, progress=progress, incident=INCIDENT, plans={PLAN.id: PLAN})
        )
        shown = [b for v, p, b in api.calls if v == "apply" and "recoveryplans" in p][-1]
        assert shown["status"]["state"] == state


def test_a_status_that_flickers_is_coalesced() -> None:
    api = FakeApi()
    one = publisher(api)
    for position in range(100):
        one.status({"position": position})
    assert len(api.calls) == 1
    one.status({"position": 100, "incident": "other"})
    assert len(api.calls) == 2


def decided(plan: PlanRecord) -> Decision:
    return Decision(Outcome.ACT, "plan", "because", (AddPlan(plan),))


def approval(api: FakeApi, now: list[float]) -> PlanApproval:
    """Plans wait for a person; the time is what `now` holds."""
    events = Events(api, "default", {"kind": "StreamTopology", "name": "minimal", "uid": "u"})  # type: ignore[arg-type]
    return PlanApproval(publisher(api), events, lambda: now[0], required=True)


def approve(api: FakeApi) -> None:
    """A person approves the first plan that is there."""
    plan = next(b for p, b in api.objects.items() if "recoveryplans" in p)
    plan["metadata"]["annotations"] = {"reprise.dev/approved": "true"}


def test_a_plan_waits_for_its_approval_and_another_plan_supersedes_it() -> None:
    api, now = FakeApi(), [0.0]
    one = approval(api, now)
    name = f"minimal-inc-2-p1-{proposal_digest(PLAN)}"
    assert not one.permits(decided(PLAN))
    assert one.held_back == name
    path = next(p for p in api.objects if "recoveryplans" in p)
    api.objects[path]["metadata"]["annotations"] = {"reprise.dev/approved": "true"}
    again = decided(replace(PLAN, time=99.0, seconds=0.5))
    assert not one.permits(again), "the same plan, taken again: it is not asked about at once"
    now[0] += ASK_S
    assert one.permits(again)
    assert one.held_back == ""
    other = replace(PLAN, added={"count.1": "n3#1"})
    assert not one.permits(decided(other)), "approval is of one plan and of nothing else"
    states = [(p.split("/")[-2], b["status"]["state"]) for v, p, b in api.calls if v == "apply"]
    assert states == [(name, "Proposed"), (name, "Superseded"), (one.held_back, "Proposed")]
    carried_out = next(b for v, p, b in api.calls if v == "apply" and b["status"]["state"] == "Superseded")
    assert [(c["type"], c["status"]) for c in carried_out["status"]["conditions"]] == [("Approved", "True")]
    one.withdraw()
    one.withdraw()
    assert len([v for v, _, _ in api.calls if v == "apply"]) == 4


def test_who_has_approved_that_partitions_are_restored_has_not_approved_that_rows_are_lost() -> None:
    """Somebody asks to skip a query while its plan waits."""
    api, now = FakeApi(), [0.0]
    one = approval(api, now)
    assert not one.permits(decided(PLAN))
    approve(api)
    now[0] += ASK_S
    assert not one.permits(decided(replace(PLAN, anew=("count.0",))))
    assert one.permits(decided(PLAN))


def test_a_plan_that_could_not_be_written_down_after_its_approval_needs_no_other() -> None:
    """The decision was made again, as the coordinator's transaction had failed."""
    api, now = FakeApi(), [0.0]
    one = approval(api, now)
    assert not one.permits(decided(PLAN))
    approve(api)
    now[0] += ASK_S
    assert one.permits(decided(PLAN)) and one.permits(decided(PLAN))
    api.spent = True
    one.withdraw()
    assert one.permits(decided(PLAN)), "what is shown holds no recovery back"
    states = [b["status"]["state"] for v, _, b in api.calls if v == "apply"]
    assert states == ["Proposed", "Superseded"], "and it is not said to be withdrawn"


class Unwritable(FakeApi):
    """Lets objects be read, and made until `refuses`."""

    refuses = False

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        if self.refuses:
            raise ForbiddenError(403, path)
        return super().apply(path, body)


@pytest.mark.parametrize("fault", ["refuses", "spent"])
def test_an_approved_plan_is_carried_out_though_its_object_cannot_be_written_and_is_shown_later(
    fault: str,
) -> None:
    api, now = Unwritable(), [0.0]
    one = approval(api, now)
    assert not one.permits(decided(PLAN))
    approve(api)
    now[0] += ASK_S
    setattr(api, fault, True)
    assert one.permits(decided(PLAN)) and not one.held_back
    setattr(api, fault, False)
    one.withdraw()
    status = [b["status"] for v, _, b in api.calls if v == "apply"][-1]
    assert status["state"] == "Superseded"
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Approved", "True")]


@pytest.mark.parametrize(
    "annotation", [None, {}, {"reprise.dev/approved": "yes"}, {"other/approved": "true"}]
)
def test_nothing_but_the_annotation_with_true_approves(annotation: dict[str, str] | None) -> None:
    api, now = FakeApi(), [0.0]
    one = approval(api, now)
    one.permits(decided(PLAN))
    path = next(p for p in api.objects if "recoveryplans" in p)
    api.objects[path]["metadata"]["annotations"] = annotation
    now[0] += ASK_S
    assert not one.permits(decided(PLAN))
    del api.objects[path]  # removed by somebody: not approved either
    now[0] += ASK_S
    assert not one.permits(decided(PLAN))


def test_objects_of_proposals_go_with_their_incident() -> None:
    api = FakeApi()
    one = publisher(api, keep=1)
    proposed = f"minimal-inc-2-p1-{proposal_digest(PLAN)}"
    one.propose(proposed, PLAN)
    older = replace(INCIDENT, plans=(PLAN.id,), phase=Phase.CLOSED, closed_at=INCIDENT.opened_at + 1)
    newer = replace(INCIDENT, id="inc-9", opened_at=INCIDENT.opened_at + 9, plans=())
    one.recoveries(replace(STEADY, closed={older.id: older}, incident=newer, plans={PLAN.id: PLAN}))
    assert [path.rpartition("/")[2] for verb, path, _ in api.calls if verb == "delete"] == [
        "minimal-inc-2-p1", proposed, "minimal-inc-2",
    ]  # fmt: skip


def test_no_plan_waits_where_none_needs_approval_and_a_first_start_never_does() -> None:
    api = FakeApi()
    events = Events(api, "default", {"kind": "StreamTopology", "name": "minimal", "uid": "u"})  # type: ignore[arg-type]
    one = PlanApproval(publisher(api), events)
    assert one.permits(decided(PLAN))
    one.required = True
    start = Incident("inc-1", Kind.START, Phase.WAITING, 1.0, 0, 1, 3, 1.0)
    assert one.permits(Decision(Outcome.ACT, "start", "", (AddPlan(PLAN), WriteIncident(start))))
    assert one.permits(Decision(Outcome.ACT, "observed", ""))
    assert api.calls == []


def test_a_coordinator_that_cannot_write_down_what_it_decides_degrades() -> None:
    said = "/reprise/default/minimal: 2,000,000 bytes, and ZooKeeper takes 1,000,000 at once"
    claims = {c.type: c for c in condition_updates(situation(replace(STEADY, undecided=said)))}
    assert (claims["Degraded"].reason, claims["Degraded"].message) == ("CannotDecide", said)


def test_a_topology_that_runs_and_shows_nothing_is_not_ready_and_says_since_when_and_why() -> None:
    progress = Progress("1", 1, 1, frozenset(NODES), dict.fromkeys(PARTITIONS, 8), horizon=57, checkpoint=5)
    seen = replace(
        STEADY,
        progress=progress,
        time=1000.0,
        watched_since=900.0,
        problems=("job failed: KeyError: 'tagg'",),
    )
    assert truths(situation(seen))["Ready"] == ("True", "AllQueriesAvailable")  # slow, as it moves
    standing = replace(seen, still=dict.fromkeys(PARTITIONS, 970.0))
    ready, degraded = (c for c in condition_updates(situation(standing)) if c.type in ("Ready", "Degraded"))
    assert (ready.truth.value, ready.reason) == ("False", "NotAdvancing")
    assert "shows nothing after batch 8 since 00:16:10 UTC" in ready.message
    assert "KeyError: 'tagg'" in ready.message
    assert (degraded.truth.value, degraded.reason) == ("True", "NotAdvancing")
    later, _ = status_of(situation(standing), {}, moment=1000.0)
    again, _ = status_of(situation(replace(standing, time=1010.0)), later, moment=1010.0)
    assert again == later  # nothing is written because time has passed
    assert later["queries"]["available"] == 0


def test_an_operator_that_has_just_started_does_not_know_yet_whether_what_is_behind_moves() -> None:
    progress = Progress("1", 1, 1, frozenset(NODES), dict.fromkeys(PARTITIONS, 8), horizon=57, checkpoint=5)
    seen = replace(
        STEADY, progress=progress, time=1000.0, watched_since=998.0, still=dict.fromkeys(PARTITIONS, 998.0)
    )
    assert truths(situation(seen))["Ready"] == ("Unknown", "NotWatchedYet")
    moved = replace(seen, still=dict.fromkeys(PARTITIONS, 999.0))
    assert truths(situation(moved))["Ready"] == ("True", "AllQueriesAvailable")


def test_a_refused_spec_is_stalled_whatever_the_queries_do_and_never_current() -> None:
    """By kstatus an object is failed where `Stalled` is True, and in progress where `Reconciling` is."""
    going_on = truths(situation(invalid="spec.nodes.count: too many"))
    assert going_on["Ready"][0] == "True"  # the spec before
    assert going_on["Stalled"] == ("True", "SpecRefused")
    assert going_on["Reconciling"][0] == "False"
    assert truths(situation())["Stalled"] == ("False", "Accepted")
    never = truths(situation(None, invalid="spec.nodes.count: too many"))
    assert (never["Ready"], never["Stalled"]) == (("False", "SpecRefused"), ("True", "SpecRefused"))
    assert never["Reconciling"][0] == "Unknown"


def test_a_topology_that_starts_is_reconciling_and_one_in_an_incident_is_not() -> None:
    assert truths(situation(replace(STEADY, desired=None)))["Reconciling"] == ("True", "Starting")
    assert truths(situation(STEADY))["Reconciling"] == ("False", "UpToDate")
    assert truths(situation(replace(STEADY, connected=False)))["Reconciling"][0] == "Unknown"


def test_a_topology_whose_driver_runs_the_spec_before_is_reconciling() -> None:
    pending = truths(situation(STEADY, driver_outdated=True, driver_problem="the driver drains"))
    assert pending["Reconciling"] == ("True", "SpecPending")


def test_standbys_are_counted_where_there_are_to_be_any() -> None:
    assert "standbys" not in status_of(situation(STEADY), {})[0]
    active = override(RESOURCE, {"operators[count].availability": "active-standby", "nodes.count": 3})
    assert STEADY.progress is not None
    seen = replace(STEADY, progress=replace(STEADY.progress, standbys={"count.0": 8}))
    now = replace(situation(seen), resource=active)
    wanted = active.operator("count").parallelism
    assert status_of(now, {})[0]["standbys"] == {"ready": 1, "wanted": wanted}


def test_what_a_failure_domain_would_take_is_said_where_domains_are_named() -> None:
    assert "failureDomains" not in status_of(situation(STEADY), {})[0]
    found = status_of(situation(STEADY, losses=Losses(75, {"zone=a": 75, "zone=b": 20})), {})[0]
    assert found["failureDomains"] == {
        "count": 2,
        "priority": 75,
        "worst": 75,
        "summary": "of a priority of 75, 47.5 would be lost with one of 2 failure domains on average, and 75 with the worst",
    }


def test_wishes_to_skip_stand_in_the_status_until_they_are_carried_out() -> None:
    assert status_of(situation(STEADY), {})[0]["skips"] == []
    query, other = sorted(TOPOLOGY.queries)[:2]
    assert STEADY.progress is not None and STEADY.desired is not None
    positions = {p: k for p, k in STEADY.progress.positions.items() if p != query}
    desired = replace(STEADY.desired, skips={annotated(query): "one"}, anew={query: "one"})
    seen = replace(
        STEADY,
        desired=desired,
        wishes={
            annotated(query): SkipWish("one"),
            annotated(other): SkipWish("two"),
            "gone.0": SkipWish("three"),
        },
        progress=replace(STEADY.progress, positions=positions),
    )
    status = status_of(situation(seen), {})[0]
    TopologyStatus.model_validate(status)
    assert status["skips"] == [
        {"query": other, "taken": False, "partitions": 0},
        {"query": query, "taken": True, "partitions": 1},
    ]
    back = replace(seen, progress=STEADY.progress, wishes={})
    assert status_of(situation(back), {})[0]["skips"] == []
    many = {f"gone.{k}": SkipWish(f"{k}") for k in range(MAX_LISTED)} | {
        q: SkipWish("w") for q in TOPOLOGY.queries
    }
    found = status_of(situation(replace(STEADY, wishes=many)), {})[0]["skips"]
    assert [skip["query"] for skip in found] == sorted(TOPOLOGY.queries)


def test_outputs_say_what_is_promised_of_them_and_the_least_comes_first() -> None:
    assert status_of(situation(STEADY), {})[0]["outputs"] == [
        {"operator": o.name, "guarantee": "precise", "limitedBy": [], "givenUp": []}
        for o in RESOURCE.operators
        if o.output
    ]
    spec = RESOURCE.operator("count")
    silent = replace(spec, name="own", class_path="nowhere:Nothing")
    forgetful = replace(spec, name="last", availability="amnesia")
    now = replace(
        situation(STEADY), resource=replace(RESOURCE, operators=(*RESOURCE.operators, silent, forgetful))
    )
    found = status_of(now, {})[0]["outputs"]
    assert found[0] == {"operator": "last", "guarantee": "gap", "limitedBy": ["last"], "givenUp": []}
    assert found[1] == {"operator": "own", "limitedBy": ["own"], "givenUp": []}
    assert {entry["guarantee"] for entry in found[2:]} == {"precise"}
    assert spec.output is not None
    sink = SinkSpec("reprise.kafka:KafkaSink", {"topic": "t", "brokers": "h:1", "on_marker_lost": "continue"})
    twice = replace(spec, name="twice", output=replace(spec.output, sink=sink))
    now = replace(
        situation(STEADY), resource=replace(RESOURCE, operators=(*RESOURCE.operators, twice, silent))
    )
    found = status_of(now, {})[0]["outputs"]
    said = "on_marker_lost: continue of twice, batches behind the checkpoint may be written twice"
    assert [entry["operator"] for entry in found[:2]] == ["own", "twice"], (
        "less than those with nothing to say"
    )
    assert found[1] == {"operator": "twice", "guarantee": "precise", "limitedBy": [], "givenUp": [said]}
    many = tuple(replace(spec, name=f"o{k}") for k in range(MAX_LISTED + 9))
    now = replace(now, resource=replace(RESOURCE, operators=(*RESOURCE.operators, *many)))
    assert len(status_of(now, {})[0]["outputs"]) == MAX_LISTED


def test_upstream_backups_are_counted_where_there_are_to_be_any() -> None:
    assert "upstreamBackup" not in status_of(situation(STEADY), {})[0]
    backed = override(RESOURCE, {"operators[count].availability": "upstream-backup"})
    assert STEADY.progress is not None
    # one with a standby that is lost with it is fed again, too, and is none of these
    seen = replace(STEADY, progress=replace(STEADY.progress, backed=frozenset({"count.0", "hot.0"})))
    wanted = backed.operator("count").parallelism
    now = replace(situation(seen), resource=backed)
    assert status_of(now, {})[0]["upstreamBackup"] == {"ready": 1, "wanted": wanted}


def test_reprise_status_counts_upstream_backups_as_the_resource_does() -> None:
    """Also in an incident, where one that is lost with its standby may be fed again, too."""
    ways = {
        "operators[count].availability": "upstream-backup",
        "operators[parser].availability": "active-standby",
    }
    resource = override(RESOURCE, ways)
    assert STEADY.progress is not None
    backed, unbacked = frozenset({"count.0", "parser.0"}), frozenset({"count.1"})
    progress = replace(STEADY.progress, backed=backed, unbacked=unbacked)
    seen = replace(STEADY, progress=progress, incident=replace(INCIDENT, plans=()))
    said = status_of(replace(situation(seen), resource=resource), {})[0]["upstreamBackup"]
    text = io.StringIO()
    Console(file=text, width=120).print(status_page(document(expand(resource), seen), 24))
    (line,) = [line for line in text.getvalue().splitlines() if line.startswith("backups")]
    assert said == {"ready": 1, "wanted": 2}
    assert line.split(maxsplit=1)[1].rstrip() == f"{said['ready']} of {said['wanted']} could be fed again now"


def test_people_are_told_that_a_plan_waits_and_that_it_was_approved_each_once() -> None:
    api, now = FakeApi(), [0.0]
    events = Events(api, "default", {"kind": "StreamTopology", "name": "minimal", "uid": "u"})  # type: ignore[arg-type]
    one = PlanApproval(publisher(api), events, lambda: now[0], required=True)
    assert one.held_back == ""
    for _ in range(3):
        assert not one.permits(decided(PLAN))
        now[0] += ASK_S
    approve(api)
    assert one.permits(decided(PLAN))
    events.flush()
    name = f"minimal-inc-2-p1-{proposal_digest(PLAN)}"
    told = [(body["reason"], name in body["message"]) for _, path, body in api.calls if "/events/" in path]
    assert told == [("PlanProposed", True), ("PlanApproved", True)]
