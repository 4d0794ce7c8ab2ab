"""The coordinator's turn: who acts, what is written, what is said, what follows from trouble.  On a ZooKeeper in memory."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooState

from reprise.algorithms import PlanningError
from reprise.controller.coordinator import coordinator as coordinator_module
from reprise.controller.coordinator import incident_log
from reprise.controller.coordinator.coordinator import FAILED_TURNS, Coordinator
from reprise.controller.coordinator.history import Kept
from reprise.controller.coordinator.store import Store
from reprise.controller.simulated_world.memory_zookeeper import MemoryClient, MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import ClientError, SessionError, StaleError, TooLargeError
from reprise.controller.zookeeper.process_records import ERROR, Leader, parse_leader
from reprise.controller.zookeeper.records import encode_desired, parse_desired
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan, parse_incident
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler import Decision, Incident, InvariantViolation, PlanRecord
from reprise.scheduler.incident import EventName
from tests.support.record_samples import INCIDENT, PLAN, POLICY, TOPOLOGY, replace
from tests.support.stores import add_node, put, ready, report

ROOT = "/reprise/test/turns"
BOTH = frozenset({"n1#1", "n2#1"})
AT_WORK = {"source.0": 1, "sink.0": 1}
LARGE = ("desired", 9, 8)


class Scene:
    """A coordinator, and a session that writes what driver and agents would."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = MemoryServer()
        self.session, self.store = self._store()
        _, self.others = self._store()
        self.coordinator = Coordinator(self.store, POLICY)

    def _store(self) -> tuple[MemoryClient, Store]:
        session = self.server.session()
        client = ZooKeeperSession(session)  # type: ignore[arg-type]
        store = Store(client, ROOT, TOPOLOGY, lambda: self.now, grace_s=0.0, elapsed=lambda: self.now)
        store.open()
        return session, store

    def rule(self) -> str:
        decision = self.coordinator.turn()
        return decision.rule if decision else ""

    def started(self) -> None:
        """At work on two nodes, nothing to do."""
        ready(self.others, "n1", "n2")
        assert self.rule() == "start"
        report(self.others, seq=1, generation=1, nodes=BOTH, positions=AT_WORK)
        assert self.rule() == "nothing-to-do"

    def lose(self, node: str) -> None:
        self.others.client.delete(f"{ROOT}/nodes/{node}")
        report(self.others, seq=1, generation=1, nodes=BOTH - {f"{node}#1"}, positions=AT_WORK)

    def said(self) -> Leader:
        return parse_leader(self.others.client.get(f"{ROOT}/{paths.COORDINATOR}")[0])

    def spoken(self) -> int:
        """How often something was said."""
        return self.others.client.get(f"{ROOT}/{paths.COORDINATOR}")[1].version


@pytest.fixture
def scene() -> Scene:
    return Scene()


def recovered(scene: Scene, turns: int = 40) -> list[str]:
    """Rules of the turns in which a node is lost, another arrives and a driver does as it is told."""
    rules = []
    for turn in range(turns):
        scene.now += 1.0
        rules.append(scene.rule())
        wanted = parse_desired(scene.others.client.get(f"{ROOT}/{paths.DESIRED}")[0])
        if turn == 3:
            scene.others.client.delete(f"{ROOT}/nodes/n1")
        alive = BOTH - ({"n1#1"} if turn >= 3 else set())
        if turn == 6:
            add_node(scene.others, "n3")
        alive |= {"n3#1"} if turn >= 6 else set()
        placed = {p: turn for p, node in wanted.assignment.items() if node in alive}
        newest = turn if len(placed) == 2 and wanted.punctuate else 0
        if newest:
            put(scene.others, f"checkpoints/{newest:08d}", b"{}")
        report(
            scene.others, seq=wanted.seq, generation=wanted.generation, nodes=alive, positions=placed,
            horizon=turn, checkpoint=newest,
        )  # fmt: skip
    return rules


def filed(scene: Scene, incident: str, closed: bool = True, plan: bool = True) -> None:
    """Records of an earlier incident of this name: of its end and of a plan."""
    if closed:
        put(scene.others, f"incidents/{incident}", encode_incident(replace(INCIDENT, id=incident)))
    if plan:
        record = replace(PLAN, id=f"{incident}-p1", incident=incident)
        put(scene.others, f"plans/{incident}-p1", encode_plan(record))


@pytest.mark.parametrize("number", [2, 40])
def test_records_of_closed_incidents_without_a_desired_state_stop_no_recovery(
    scene: Scene, number: int
) -> None:
    """As at a second site, or where one record was lost: what is there already cannot be written again."""
    old = f"inc-{number:06d}"
    filed(scene, old)
    ready(scene.others, "n1", "n2")
    rules = recovered(scene)
    assert {"start", "failure-detected", "restored", "closed"} <= set(rules), rules
    closed = scene.others.client.get_children(f"{ROOT}/{paths.INCIDENTS}")
    assert len(closed) == 2 and max(closed) > old
    assert "" not in rules, "nothing was refused"


@pytest.mark.parametrize(
    ("closed", "plan", "others"),
    [(True, True, ()), (False, True, ()), (True, False, ()), (True, True, ("inc-000002-2",))],
)
def test_an_incident_whose_name_an_earlier_one_has_goes_on_under_another(
    scene: Scene, closed: bool, plan: bool, others: tuple[str, ...]
) -> None:
    scene.started()
    for name in ("inc-000002", *others):
        filed(scene, name, closed, plan)
    before = {path: found for path, found in scene.server.records.items() if "/inc-" in path}
    rules = recovered(scene)
    assert {"failure-detected", "restored", "closed"} <= set(rules), rules
    assert rules.count("") == 1, "what was refused is taken again at once"
    assert before.items() <= scene.server.records.items(), "what was filed stays as it was"
    new = f"inc-000002-{len(others) + 2}"
    ended = parse_incident(scene.others.client.get(f"{ROOT}/{paths.INCIDENTS}/{new}")[0], "")
    assert ended.id == new and ended.plans
    for name in ended.plans:
        assert f"{ROOT}/{paths.PLANS}/{name}" in scene.server.records
    scene.session.asked.clear()
    scene.rule()
    assert not [path for _, path in scene.session.asked if path.endswith(paths.INCIDENTS)], (
        "not asked any more"
    )


def test_an_incident_left_open_whose_name_an_earlier_one_has_is_closed_under_another(scene: Scene) -> None:
    filed(scene, "inc-000002")
    put(scene.others, paths.INCIDENT, encode_incident(replace(INCIDENT, plans=())))
    ready(scene.others, "n1", "n2")
    assert [scene.rule() for _ in range(3)] == ["", "closed", "start"]
    assert f"{ROOT}/{paths.INCIDENTS}/inc-000002-2" in scene.server.records
    wanted = parse_desired(scene.others.client.get(f"{ROOT}/{paths.DESIRED}")[0])
    assert wanted.seq > 2


def test_incidents_on_record_are_asked_for_only_without_a_desired_state(scene: Scene) -> None:
    put(scene.others, "plans/inc-000007-p2", b"{}")
    put(scene.others, "incidents/of-another-version", b"{}")
    ready(scene.others, "n1", "n2")
    assert scene.store.read().snapshot.closed == 7
    assert scene.rule() == "start"
    scene.session.asked.clear()
    assert scene.store.read().snapshot.closed == 0
    asked = {path.removeprefix(f"{ROOT}/") for _, path in scene.session.asked}
    assert not {paths.INCIDENTS, paths.PLANS} & asked


def test_who_does_not_lead_reads_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ready(scene.others, "n1", "n2")
    assert scene.others.lead(Leader(7))
    scene.session.asked.clear()
    assert scene.coordinator.turn() is None
    assert scene.coordinator.turn() is None
    assert {verb for verb, _ in scene.session.asked} == {"exists"}
    assert caplog.text.count("event=standing-by") == 1
    scene.others.client.delete(f"{ROOT}/{paths.COORDINATOR}")
    assert scene.rule() == "start"
    assert caplog.text.count("event=leading") == 1


def test_who_has_lost_the_place_while_it_read_decides_nothing(scene: Scene) -> None:
    ready(scene.others, "n1", "n2")
    assert scene.rule() == "start"
    scene.others.client.delete(f"{ROOT}/{paths.COORDINATOR}")
    assert scene.others.lead(Leader(7))
    scene.store.changed.clear()
    assert scene.coordinator.turn() is None
    assert scene.store.changed.is_set(), "it looks again at once"
    assert scene.said() == Leader(7)


def test_what_is_held_back_is_not_carried_out_and_is_taken_again(scene: Scene) -> None:
    allowed: list[Decision] = []
    scene.coordinator.permits = lambda decision: bool(allowed.append(decision)) or len(allowed) > 2
    ready(scene.others, "n1", "n2")
    assert [scene.rule(), scene.rule()] == ["", ""]
    assert scene.said().rule == "held-back"
    assert scene.said().reason.startswith("start: ")
    assert scene.spoken() == 1, "said once"
    assert scene.others.read().snapshot.desired is None
    assert scene.rule() == "start"
    assert scene.others.read().snapshot.desired is not None


@pytest.mark.parametrize(
    ("error", "again"),
    [(StaleError("refused"), True), (SessionError("no answer"), False)],
)
def test_a_decision_that_is_not_known_to_be_carried_out_is_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: Exception, again: bool
) -> None:
    def refuse(*_: object) -> None:
        scene.store.changed.clear()
        raise error

    ready(scene.others, "n1", "n2")
    monkeypatch.setattr(Store, "commit", refuse)
    assert scene.coordinator.turn() is None
    assert scene.store.changed.is_set() is again
    assert scene.coordinator.problem == ""
    monkeypatch.undo()
    assert scene.rule() == "start"


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [
        ("decide", InvariantViolation("places", "two"), "InvariantViolation: places: two"),
        ("decide", PlanningError("no kernels"), "PlanningError: no kernels"),
        ("commit", TooLargeError(*LARGE), f"start cannot be written down: {TooLargeError(*LARGE)}"),
    ],
)
def test_a_decision_that_is_not_possible_is_a_problem_until_it_is(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception, says: str
) -> None:
    ready(scene.others, "n1", "n2")
    target: Any = coordinator_module if where == "decide" else Store
    monkeypatch.setattr(target, where, raising(error))
    assert [scene.coordinator.turn(), scene.coordinator.turn()] == [None, None]
    assert scene.coordinator.problem == says
    assert scene.said() == Leader(os.getpid(), ERROR, says, 1000.0, POLICY.settle_s, POLICY.driver_grace_s)
    assert scene.said().undecided == says
    assert scene.spoken() == 1
    monkeypatch.undo()
    assert scene.rule() == "start"
    assert scene.coordinator.problem == ""
    assert scene.said().undecided == ""


def test_what_was_decided_is_said_with_its_reason_and_time(scene: Scene) -> None:
    scene.started()
    scene.now = 1007.0
    scene.lose("n1")
    decision = scene.coordinator.turn()
    assert decision is not None
    assert scene.said() == Leader(
        os.getpid(), "failure-detected", decision.reason, 1007.0, POLICY.settle_s, POLICY.driver_grace_s
    )


def test_what_a_turn_has_seen_is_what_it_has_read_with_what_it_has_written(scene: Scene) -> None:
    ready(scene.others, "n1", "n2")
    assert scene.rule() == "start"
    seen, wanted = scene.coordinator.seen, scene.others.read().snapshot.desired
    assert seen is not None and wanted is not None and seen.desired == wanted
    report(scene.others, seq=1, generation=1, nodes=BOTH, positions=AT_WORK)
    assert scene.rule() == "nothing-to-do"
    assert scene.coordinator.seen is not None and scene.coordinator.seen.desired == wanted, "it is still so"
    scene.lose("n1")
    assert scene.rule() == "failure-detected"
    seen, incident = scene.coordinator.seen, scene.others.read().snapshot.incident
    assert seen is not None and incident is not None and seen.incident == incident


def test_the_seconds_for_which_a_burst_settles_are_no_news(scene: Scene) -> None:
    scene.coordinator.policy = replace(POLICY, settle_s=10.0)
    scene.started()
    scene.lose("n1")
    assert scene.rule() == "failure-detected"
    scene.now += 1
    report(scene.others, seq=2, generation=1, nodes={"n2#1"}, positions=AT_WORK)
    assert scene.rule() == "settling"
    first, spoken = scene.said(), scene.spoken()
    scene.now += 1
    assert scene.rule() == "settling"
    assert (scene.said(), scene.spoken()) == (first, spoken)


def test_a_plan_is_made_ahead_once_for_what_settles_and_dropped_when_nothing_does(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    real = coordinator_module.precompute

    def precompute(*arguments: Any) -> Any:
        made.append(arguments[-1])
        return real(*arguments)

    monkeypatch.setattr(coordinator_module, "precompute", precompute)
    scene.coordinator.policy = replace(POLICY, settle_s=10.0)
    scene.started()
    scene.coordinator.precompute()
    assert made == [], "nothing settles"
    scene.lose("n1")
    assert scene.rule() == "failure-detected"
    scene.coordinator.precompute()
    scene.coordinator.precompute()
    assert made == [None], "once for a look"
    scene.now += 1
    assert scene.rule() == "settling"
    scene.coordinator.precompute()
    assert made[1:] == [scene.coordinator._precomputed], "with what is known already"
    assert made[1] is not None
    scene.session.move(KazooState.SUSPENDED)
    assert scene.rule() == ""
    scene.coordinator.precompute()
    assert len(made) == 2, "nothing was found"
    scene.session.move(KazooState.CONNECTED)
    scene.now += 100
    report(scene.others, seq=2, generation=1, nodes={"n2#1"}, positions={})
    assert "plan" in scene.rule()
    assert scene.coordinator._precomputed is None


def test_with_the_end_of_an_incident_old_ones_leave_the_record(scene: Scene) -> None:
    scene.coordinator.kept = Kept(incidents=2)
    for number in (1, 2, 3):
        name = f"inc-{number:06d}"
        closed = replace(INCIDENT, id=name, plans=(), closed_at=5.0)
        put(scene.others, f"{paths.INCIDENTS}/{name}", encode_incident(closed))
    scene.started()
    desired = scene.others.read().snapshot.desired
    assert desired is not None
    put(scene.others, paths.DESIRED, encode_desired(replace(desired, seq=9)))  # incidents are numbered by it
    scene.lose("n1")
    rules = [scene.rule()]
    for step in range(1, 30):
        scene.now += 1
        found = scene.others.read().snapshot
        assert found.desired is not None
        put(scene.others, f"checkpoints/{step:08d}", b"{}")
        at = {p: step + 5 for p, node in found.desired.assignment.items() if node == "n2#1"}
        report(
            scene.others, seq=found.desired.seq, generation=found.desired.generation, checkpoint=step,
            nodes={"n2#1"}, positions=at, horizon=step + 5,
        )  # fmt: skip
        rules.append(scene.rule())
        if found.incident is None:
            break
    names = scene.others.client.get_children(f"{ROOT}/{paths.INCIDENTS}")
    assert sorted(names) == ["inc-000003", "inc-000010"], rules


# -- the loop --------------------------------------------------------------------------------------------------------


def test_a_turn_that_fails_is_logged_and_another_follows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turns, ahead = itertools.count(1), list[int]()

    def turn(coordinator: Coordinator) -> None:
        assert not coordinator.store.changed.is_set(), "what comes from now on wakes it"
        number = next(turns)
        coordinator.store.changed.set()
        if number == 1:
            raise ValueError("nobody foresaw this")
        if number == 3:
            coordinator.stop.set()

    monkeypatch.setattr(Coordinator, "turn", turn)
    monkeypatch.setattr(Coordinator, "precompute", lambda _: ahead.append(1))
    thread = threading.Thread(target=scene.coordinator.run)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
    assert next(turns) == 4
    assert len(ahead) == 2, "after each turn that did not fail"
    assert "nobody foresaw this" in caplog.text


@pytest.mark.parametrize(
    ("errors", "ended"),
    [
        ([ValueError] * FAILED_TURNS, True),
        ([*[ValueError] * (FAILED_TURNS - 1), None] * 2, False),
        ([SessionError] * 2 * FAILED_TURNS, False),
        ([ClientError] * 2 * FAILED_TURNS, False),
    ],
)
def test_a_coordinator_whose_turns_fail_without_end_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, errors: list[type[Exception] | None], ended: bool
) -> None:
    left = list(errors)
    monkeypatch.setattr(coordinator_module, "TICK_S", 0.0)

    def turn(coordinator: Coordinator) -> None:
        coordinator.store.changed.set()
        if not left:
            coordinator.stop.set()
        elif (error := left.pop(0)) is not None:
            raise error("nobody foresaw this")

    monkeypatch.setattr(Coordinator, "turn", turn)
    monkeypatch.setattr(Coordinator, "precompute", lambda _: None)
    with pytest.raises(ValueError, match="nobody foresaw") if ended else contextlib.nullcontext():
        scene.coordinator.run()
    assert not left


# -- the log ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO)

    def new() -> list[str]:
        """Of incidents and plans, since this was called last."""
        found = [r.getMessage() for r in caplog.records]
        caplog.clear()
        return [
            line for line in found if line.startswith(("event=incident ", "event=plan ", "event=log-not"))
        ]

    return new


OPEN = replace(INCIDENT, id="inc-000002", closed_at=None, plans=("inc-000002-p1",)).log(
    11.0, EventName.CORRELATED, "all"
)


def test_what_a_decision_adds_is_logged_and_nothing_twice(lines: Callable[[], list[str]]) -> None:
    incident_log.log_changes(None, OPEN, [PLAN])
    assert lines() == [
        "event=incident incident=inc-000002 kind=correlated name=opened time=10.0 detail='now'",
        "event=incident incident=inc-000002 kind=correlated name=correlated time=11.0 detail='all'",
        f"event=plan incident=inc-000002 plan=inc-000002-p1 time=11.0 trigger=first "
        f"summary={incident_log.plan_summary(PLAN)!r}",
    ]
    later = OPEN.log(12.0, EventName.CLOSED)
    incident_log.log_changes(OPEN, later, [])
    assert [line.split("name=")[1] for line in lines()] == ["closed time=12.0 detail=''"]
    incident_log.log_changes(later, later, [])
    incident_log.log_changes(later, None, [])
    assert lines() == []
    another = replace(OPEN, id="inc-000003")
    incident_log.log_changes(OPEN, another, [])
    assert len(lines()) == 2, "another incident may have the same events"


def kept(scene: Scene, *incidents: Incident, plans: tuple[PlanRecord, ...] = ()) -> None:
    for incident in incidents:
        put(scene.others, f"{paths.INCIDENTS}/{incident.id}", encode_incident(incident))
    for plan in plans:
        put(scene.others, f"{paths.PLANS}/{plan.id}", encode_plan(plan))


def test_a_new_leader_logs_the_newest_closed_incident_again(
    scene: Scene, lines: Callable[[], list[str]]
) -> None:
    old = replace(OPEN, id="inc-000001", plans=())
    both = ("inc-000002-p1", "inc-000002-p2")
    kept(scene, replace(OPEN, plans=both), old, plans=(PLAN,))  # the second plan is gone
    ready(scene.others, "n1", "n2")
    scene.coordinator.turn()
    told = lines()
    assert [line.split(" ")[0] for line in told[:3]] == ["event=incident", "event=incident", "event=plan"]
    assert all("inc-000002" in line for line in told[:3])
    scene.coordinator.turn()
    assert not [line for line in lines() if "inc-000002" in line], "once, as long as it leads"
    scene.session.expire()
    scene.others.client.create(f"{ROOT}/{paths.COORDINATOR}")
    assert scene.coordinator.turn() is None
    scene.others.client.delete(f"{ROOT}/{paths.COORDINATOR}")
    scene.coordinator.turn()
    assert len([line for line in lines() if "inc-000002" in line]) == 3, "and when it leads again"


def test_a_new_leader_logs_the_open_incident_and_no_closed_one(
    scene: Scene, lines: Callable[[], list[str]]
) -> None:
    kept(scene, replace(OPEN, id="inc-000001"), plans=(PLAN,))
    incident_log.replay_log(scene.store.client, ROOT, OPEN)
    assert {line.split(" ")[1] for line in lines()} == {"incident=inc-000002"}


def test_without_history_there_is_nothing_to_log_again(scene: Scene, lines: Callable[[], list[str]]) -> None:
    incident_log.replay_log(scene.store.client, ROOT, None)
    incident_log.replay_log(scene.store.client, "/reprise/test/never-there", None)
    assert lines() == []


@pytest.mark.parametrize("trouble", ["a broken record", "silence", "no session"])
def test_a_log_that_cannot_be_repeated_stops_nobody(
    scene: Scene, lines: Callable[[], list[str]], trouble: str
) -> None:
    put(scene.others, f"{paths.INCIDENTS}/inc-000001", b"[]")
    scene.server.silent = trouble == "silence"
    if trouble == "no session":
        scene.session.move(KazooState.SUSPENDED)
    incident_log.replay_log(scene.store.client, ROOT, None)
    told = lines()
    assert [line.split(" ")[0] for line in told] == ["event=log-not-replayed"]
    assert ("inc-000001" in told[0]) is (trouble == "a broken record"), "it is named"
