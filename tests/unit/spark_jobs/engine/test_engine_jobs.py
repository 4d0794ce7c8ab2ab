"""The engine: jobs that fail, what each node is told, how far the stream is and how it goes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Origin, Positions
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.engine import WINDOW, Engine
from reprise.spark_jobs.engine.repeated import LIMIT
from reprise.spark_jobs.errors import HostBusyError, JobError, StoreError
from reprise.spark_jobs.node.command import Install, Usage
from tests.support.answering_hosts import LIVING, PLACES, Scene, file_of


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_a_chain_serves_until_a_job_fails_or_hosts_change(scene: Scene) -> None:
    engine = scene.engine
    scene.tick()
    scene.tick()
    assert scene.hosts.connected == [("host-a", "host-b")]
    scene.hosts.error = JobError("cut")
    scene.tick()
    scene.hosts.error = None
    scene.tick()
    assert scene.hosts.connected == [("host-a", "host-b")] * 2
    scene.tick({**LIVING, "c#1": "host-c"})
    assert len(scene.hosts.connected) == 2, "nothing is on the other node"
    scene.want(assignment=dict.fromkeys(PLACES, "c#1"))
    scene.tick({**LIVING, "c#1": "host-c"})
    assert scene.hosts.connected[2:] == [("host-c",)]
    assert [job for job, _, _ in scene.hosts.asked] == [(engine.epoch, k) for k in range(1, 7)]
    assert {(stages, patience) for _, stages, patience in scene.hosts.asked} == {(3, 60.0)}


def test_a_job_that_failed_is_not_confirmed_and_everything_is_sent_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.tick()
    scene.tick()
    assert {c.confirmed for c in scene.hosts.commands} == {1}
    scene.hosts.error = JobError("cut", 1)
    assert scene.tick()
    engine = scene.engine
    assert (engine.failures, engine.figures.failed_jobs, engine.idle) == (1, 1, False)
    assert "event=job-failed job=3 failures=1 reason='cut'" in caplog.text
    scene.hosts.error = None
    scene.tick()
    assert {c.confirmed for c in scene.hosts.commands} == {2}
    assert [command.resend for command in scene.hosts.commands] == [("mid.0",), ("out.0",)]
    assert (engine.failures, engine.figures.failed_jobs) == (0, 1)
    scene.tick()
    assert {c.resend for c in scene.hosts.commands} == {()}
    assert {c.confirmed for c in scene.hosts.commands} == {4}


def test_hosts_get_the_key_of_the_exchange_that_is_used(scene: Scene) -> None:
    scene.hosts.link, scene.hosts.link_key = 7, "5ec2e7"
    scene.tick()
    assert {(c.link, c.link_key) for c in scene.hosts.commands} == {(7, "5ec2e7")}
    assert "5ec2e7" not in repr(scene.hosts.commands)


def test_what_fails_again_and_again_is_told_with_its_node_once(scene: Scene) -> None:
    engine = scene.engine
    scene.hosts.error = JobError("no memory in 7 s", 1)
    for _ in range(LIMIT - 1):
        scene.tick()
    assert (engine.problems, engine.stuck) == ([], "")
    scene.tick()
    scene.tick()
    assert engine.problems == ["jobs fail again and again: node b: no memory in 7 s"]
    assert engine.progress.stuck == f"{LIMIT + 1} jobs in a row have failed: node b: no memory in 7 s"
    scene.hosts.error = None
    scene.tick()
    assert engine.progress.stuck == ""


def test_a_failure_of_no_known_slot_names_no_node(scene: Scene) -> None:
    scene.hosts.error = JobError("Spark is gone")
    for _ in range(LIMIT):
        scene.tick()
    assert scene.engine.problems == ["jobs fail again and again: Spark is gone"]


def test_a_host_that_is_busy_is_told_at_once(scene: Scene) -> None:
    scene.hosts.error = HostBusyError("it has been in operator slow", 0)
    scene.tick()
    assert scene.engine.problems == ["node a: it has been in operator slow"]


def test_a_job_that_was_cancelled_says_nothing_of_anybody(scene: Scene) -> None:
    scene.hosts.error = HostBusyError("it has been in operator slow", 0)
    for _ in range(LIMIT + 1):
        scene.tick(cancelled=True)
    assert (scene.engine.problems, scene.engine.stuck) == ([], "")
    assert scene.engine.failures == LIMIT + 1


def test_times_of_jobs_are_counted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    scene.engine.clock = lambda: now[0]
    reach = type(scene.engine.ledger).reach

    def reaching(ledger: Any, due: int) -> int:
        now[0] += 0.5
        return reach(ledger, due)

    def working() -> None:
        now[0] += 4.0

    def settling() -> float:
        now[0] += 0.25
        return 0.0

    monkeypatch.setattr(type(scene.engine.ledger), "reach", reaching)
    monkeypatch.setattr(scene.engine, "release", ReleaseAt(scene.engine.release, settling))
    scene.hosts.during = working
    scene.hosts.changes = {0: {"busy_s": 3.0}, 1: {"busy_s": 1.0}}
    slow: list[Any] = []
    monkeypatch.setattr(engine_module, "say_slow", lambda *given: slow.append(given))
    scene.tick()
    (times,) = scene.engine.figures.jobs
    assert (times.compute_s, times.exchange_s) == (3.0, 1.0)
    assert times.prepare_s >= 0.5
    assert times.settle_s == 0.25
    assert scene.engine.busy_s == 4.0
    ((job, took, slots, slowest),) = slow
    assert (job, took, slots, slowest.slot) == (1, 4.0, ("a#1", "b#1"), 0)
    scene.hosts.changes = {0: {"busy_s": 9.0}}
    scene.tick()
    assert (scene.engine.figures.jobs[1].compute_s, scene.engine.figures.jobs[1].exchange_s) == (4.0, 0.0)
    assert scene.engine.busy_s == 8.0


class ReleaseAt:
    """The stream's clock; `asked` is called where the engine asks for the time to start it, after a job."""

    def __init__(self, real: Any, asked: Callable[[], float]) -> None:
        self._real, self._asked = real, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def start(self, now: float) -> None:
        self._asked()
        self._real.start(now)


# -- commands ----------------------------------------------------------------------------------------------------------


def test_each_slot_is_told_its_own_and_what_all_share(scene: Scene) -> None:
    engine = scene.engine
    engine.ledger.problems.append("in.0: its log was cut")
    scene.tick()
    assert engine.problems == ["in.0: its log was cut"]
    assert engine.ledger.problems == []
    first, second = scene.hosts.commands
    assert (first.slot, second.slot) == (0, 1)
    assert first.hosted == {"in.0": engine.installation["in.0"]}
    assert second.hosted.keys() == {"mid.0", "out.0"}
    assert first.installs == {"in.0": Install(0)}
    assert second.installs == {"mid.0": Install(0), "out.0": Install(0)}
    assert first.ranges["in.0"].keys() == {1, 2, 3, 4}
    assert second.ranges == {}
    for command in (first, second):
        assert (command.job, command.epoch, command.horizon, command.final) == (1, engine.epoch, 4, None)
        assert command.topology == scene.world.resource.document
        assert (command.sink, command.checkpoints) == (str(scene.world.sink), str(scene.world.checkpoints))
        assert (command.window, command.retain, command.published) == (WINDOW, False, 0)
        assert command.stream == engine.ledger.stream > 0
        assert command.covered == Positions(0)
        assert command.punctuations == ()
    scene.tick()
    first, second = scene.hosts.commands
    assert first.installs == second.installs == {}
    assert first.ranges["in.0"].keys() == {5, 6, 7, 8}
    assert first.positions["mid.0"] == 4
    assert first.routes["mid.0"] == 1
    assert first.punctuations == (5,)


def test_an_installation_has_a_name_of_its_own(scene: Scene) -> None:
    engine = scene.engine
    first = dict(engine.installation)
    assert sorted(first.values()) == [f"{engine.epoch}.1.{k}" for k in (1, 2, 3)]
    scene.tick()
    scene.want(assignment={**PLACES, "out.0": "a#1"})
    assert engine.installation == {**first, "out.0": f"{engine.epoch}.1.4"}
    assert engine.installing == {"out.0"}


def test_who_is_moved_goes_on_from_the_checkpoint_that_is_desired_now(scene: Scene) -> None:
    """Of all others nothing changes, so nothing else asks for what is stored there."""
    scene.tick()
    scene.tick()
    scene.acks(5)
    scene.tick()
    scene.hosts.changes.clear()
    scene.want(checkpoint=5, assignment={**PLACES, "out.0": "a#1"})
    assert scene.engine.positions["out.0"] == 5
    scene.tick()
    assert scene.hosts.commands[0].installs == {"out.0": Install(5, file_of("out.0"))}
    assert scene.hosts.commands[1].installs == {}


def test_where_nobody_is_installed_the_store_is_not_asked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be away while an incident is closed."""
    scene.tick()
    scene.tick()
    scene.acks(5)
    scene.tick()

    def away(*_: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(type(scene.engine.store), "manifest", away)
    scene.engine.restore_point._own.clear()  # another driver has written it
    scene.want(checkpoint=5)
    assert scene.engine.desired.checkpoint == 5
    with pytest.raises(StoreError):
        scene.want(checkpoint=5, assignment={p: "b#1" if n == "a#1" else "a#1" for p, n in PLACES.items()})


def test_what_is_desired_and_paused_releases_nothing(scene: Scene) -> None:
    scene.tick()
    scene.want(paused=True)
    for _ in range(3):
        scene.tick()
    assert (scene.engine.horizon, scene.engine.due, scene.engine.progress.due) == (4, 4, 4)
    assert scene.engine.idle
    scene.want(paused=False)
    scene.tick()
    assert scene.engine.horizon > 4


def test_in_an_incident_the_checkpoint_that_it_restores_from_covers_what_is_kept(scene: Scene) -> None:
    scene.tick()
    scene.tick()
    scene.acks(5)
    scene.tick()
    assert scene.engine.punctuations.newest == 5
    scene.want(retain=True, punctuate=False, lines={"out.0": Origin(1, 0)})
    scene.hosts.changes.clear()
    scene.tick()
    (command, _) = scene.hosts.commands
    assert (command.retain, command.published) == (True, 5)
    assert command.covered == Positions(0)


# -- how far it is -----------------------------------------------------------------------------------------------------


def ended(scene: Scene, at: int) -> None:
    scene.engine.ledger.ended_at = at


def test_the_batch_after_the_last_ends_the_stream(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = scene.engine
    assert engine.final is None
    ended(scene, 6)
    assert engine.final == 7
    scene.tick()
    scene.tick()
    assert engine.horizon == 7
    assert engine.punctuations.open == (5, 7)
    assert engine.progress.ended
    assert not engine.done, "the last state is not stored"
    assert scene.hosts.commands[0].final == 7
    scene.acks(7)
    scene.tick()
    assert engine.done and engine.progress.done
    scene.tick()
    assert engine.idle


def test_what_is_staged_or_being_installed_is_not_done(scene: Scene) -> None:
    ended(scene, 2)
    scene.tick()
    scene.acks(3)
    scene.tick()
    engine = scene.engine
    assert engine.done
    engine.staged = {"b#1": 1}
    assert not engine.done
    assert not engine.idle
    engine.staged = {"b#1": 0}
    engine.installing.add("out.0")
    assert not engine.done
    engine.installing.clear()
    assert engine.done


def test_a_stream_is_done_without_what_is_set_aside_and_not_without_what_is_lost(scene: Scene) -> None:
    ended(scene, 2)
    scene.tick()
    engine = scene.engine
    assert engine.punctuations.newest == 0
    del engine.positions["out.0"]
    engine.failed["out.0"] = Failure(FailureKind.NODE_LOST)
    assert not engine.done
    engine.failed["out.0"] = Failure(FailureKind.POISON, "no sevens")
    assert engine.done, "no checkpoint is taken any more"
    engine.positions["mid.0"] = 2
    assert not engine.done
    engine.failed["in.0"] = Failure(FailureKind.POISON, "no sevens")
    assert engine.done, "nothing is left to wait for"


@pytest.mark.parametrize(
    "busy",
    [
        lambda e: setattr(e, "failures", 1),
        lambda e: e.resend.add("out.0"),
        lambda e: e.installing.add("out.0"),
        lambda e: e.punctuations.demand(9),
        lambda e: e.staged.update({"b#1": 1}),
        lambda e: setattr(e.drain, "asked", True),
        lambda e: e.positions.update({"out.0": 3}),
    ],
    ids=["failed", "resend", "installing", "punctuation", "staged", "draining", "behind"],
)
def test_what_makes_a_further_job_worth_while(scene: Scene, busy: Callable[[Engine], None]) -> None:
    scene.tick()
    assert scene.engine.idle
    busy(scene.engine)
    assert not scene.engine.idle


def test_a_stream_is_drained_when_all_is_stored_and_shown(scene: Scene) -> None:
    scene.tick()
    engine = scene.engine
    engine.drain.asked = True
    scene.tick()
    last = engine.horizon
    assert engine.punctuations.open == (last,)
    assert engine.drained is None
    scene.tick()
    assert engine.horizon == last
    scene.acks(last)
    scene.tick()
    assert engine.punctuations.newest == last
    assert engine.drained is None, "hosts have not been told yet that they may show it"
    scene.hosts.changes = {1: {"staged": 1}}
    scene.tick()
    assert engine.drained is None, "not all is shown"
    scene.hosts.changes.clear()
    scene.tick()
    assert engine.drained == engine.progress.drained == last
    assert engine.idle
    engine.positions.pop("out.0")
    assert engine.drained is None


def test_the_slowest_is_left_behind_by_no_more_than_a_window_except_in_an_incident(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There those that have all their input go on with the clock."""
    asked = list[tuple[float, int, int]]()

    def pace(_: object, now: float, slowest: int, window: int) -> int:
        asked.append((now, slowest, window))
        return WINDOW + 20

    engine = scene.engine
    monkeypatch.setattr(type(engine.release), "pace", pace)
    monkeypatch.setattr(type(engine.release), "now", lambda _: 77.0)
    engine.release.ahead = 10**6
    scene.hosts.changes = {1: {"positions": {"mid.0": 3, "out.0": 2}}}
    scene.tick()
    assert engine.horizon == WINDOW
    scene.tick()
    assert engine.horizon == WINDOW + 2
    scene.want(retain=True)
    scene.tick()
    assert engine.horizon == WINDOW + 20
    assert asked == [(77.0, 0, WINDOW), (77.0, 2, WINDOW), (77.0, 2, WINDOW)]


def test_a_clock_that_was_set_is_told_of(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(scene.engine.release), "was_set", lambda _: "the clock was set back by 60 s")
    scene.tick()
    assert scene.engine.problems == ["the clock was set back by 60 s"]


# -- going back --------------------------------------------------------------------------------------------------------


def test_figures_of_a_restoration(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    scene.engine.clock = lambda: now[0]
    engine = scene.engine
    scene.tick()
    scene.tick()
    assert engine.figures.restored == 0, "the first placement restores nothing"
    scene.acks(5)
    scene.tick()
    horizon = engine.horizon
    scene.hosts.changes.clear()
    scene.want(generation=2, checkpoint=5)
    assert engine.state_bytes == {"in.0": 0, "mid.0": 70, "out.0": 70}
    assert engine.horizon == 5
    assert engine.drain.shown_by == horizon
    assert engine.counters == {}
    now[0] += 3.0
    scene.hosts.changes = {1: {"usage": {"mid.0": Usage(0.1, 50)}, "spilled": 8}}
    scene.tick()
    figures = engine.figures
    assert (figures.restored, figures.restore_bytes, figures.restore_s) == (3, 140, 9.0)
    assert figures.spilled_bytes == 8
    assert figures.replay_bytes == 50
    scene.tick()
    assert figures.spilled_bytes == 8


def test_a_store_that_is_away_changes_nothing_of_what_is_wanted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.tick()
    scene.tick()
    scene.acks(5)
    scene.tick()
    engine = scene.engine
    before = (engine.desired, dict(engine.positions), engine.horizon, dict(engine.installation))

    def away(*_: object) -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.store), "withdraw", away)
        with pytest.raises(StoreError):
            scene.want(generation=2, checkpoint=5)
    assert (engine.desired, engine.positions, engine.horizon, engine.installation) == before
    scene.want(generation=2, checkpoint=5)
    assert engine.positions == dict.fromkeys(PLACES, 5)
    assert engine.installing == set(PLACES)


def test_what_a_new_driver_should_be_told_of_is_a_problem(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.tick()
    engine = scene.world.driver()
    asked = []

    def begin(_: object, newest: int, window: int) -> list[str]:
        asked.append((newest, window))
        return ["300 batches came due"]

    monkeypatch.setattr(type(engine.release), "begin", begin)
    engine.begin(7)
    assert asked == [(7, WINDOW)]
    assert engine.problems == ["300 batches came due"]
    assert engine.punctuations.newest == engine.progress.covers.everybody == 7
    assert engine.drain.shown_by == engine.ledger.written > 0
