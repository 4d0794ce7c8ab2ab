"""The engine: what it tells, and what it believes of what hosts say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Positions
from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.node.command import Ack, Held, Usage
from tests.support.answering_hosts import PLACES, Scene, file_of


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


# -- what is told ------------------------------------------------------------------------------------------------------


def test_progress_says_how_things_stand(scene: Scene) -> None:
    scene.hosts.changes = {
        0: {"memory": 10, "disk": 200, "not_kept": ("mid.0",)},
        1: {"memory": 5, "disk": 0, "counters": {"mid.0": {"keys": 3}, "out.0": {"late_rows": 1}}},
    }
    assert scene.tick()
    found = scene.engine.progress
    assert (found.seq, found.generation, found.nodes) == (1, 1, ("a#1", "b#1"))
    assert found.positions == dict.fromkeys(PLACES, 4)
    assert (found.horizon, found.due, found.jobs, found.failed) == (4, 4, 1, {})
    assert (found.memory, found.disk, found.not_kept) == (15, 200, ("mid.0",))
    assert found.counters == {"mid": {"keys": 3}, "out": {"late_rows": 1}}
    assert (found.ended, found.done, found.drained, found.stuck) == (False, False, None, "")
    assert (found.punctuation, found.covers, found.bad_checkpoints, found.trimmed) == (0, Positions(0), (), 0)
    scene.tick()
    assert scene.engine.progress.punctuation == 5, "announced, and not complete"


def test_progress_is_made_before_a_job_that_may_hang(scene: Scene) -> None:
    scene.tick()
    seen = []
    scene.hosts.during = lambda: seen.append((scene.engine.progress.due, scene.engine.progress.horizon))
    scene.tick()
    assert seen == [(8, 4)], "what is due now, and what was when hosts told of their positions"


def test_progress_is_made_though_what_is_wanted_cannot_be(scene: Scene) -> None:
    scene.tick()
    with pytest.raises(CheckpointError):
        scene.want(generation=2, checkpoint=3)
    assert scene.engine.progress.bad_checkpoints == (3,)
    assert scene.engine.progress.generation == 1


def test_a_checkpoint_is_told_of_with_what_it_covers_and_how_long_it_took(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    scene.tick()
    scene.tick()
    assert scene.engine.punctuations.open == (5,)
    scene.acks(5)
    stored = list[tuple[int, int]]()
    real = type(scene.engine.ledger).stored

    def noted(ledger: Any, position: int, oldest: int) -> None:
        stored.append((position, oldest))
        real(ledger, position, oldest)

    monkeypatch.setattr(type(scene.engine.ledger), "stored", noted)
    scene.tick()
    assert scene.engine.progress.covers == Positions(5)
    assert stored == [(5, 0)], "the beginning may still be named"
    assert scene.engine.problems == []
    assert scene.engine.state_bytes == {"in.0": 0, "mid.0": 70, "out.0": 70}
    assert 0 < scene.engine.figures.checkpoint_s < 60
    manifest = scene.engine.store.manifest(5)
    assert manifest.position == 5
    assert manifest.snapshots.keys() == {"mid.0", "out.0"}
    assert manifest.offsets["in.0"] == scene.engine.ledger.offsets(5)["in.0"]
    assert "event=checkpoint-complete position=5 files=2" in caplog.text


def test_trouble_with_a_checkpoint_is_told_and_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.tick()
    scene.tick()
    scene.acks(5)

    def away(*_: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(type(scene.engine.store), "complete", away)
        assert scene.tick()
    assert scene.engine.problems == ["checkpoint waits: OSError: no route"]
    assert scene.engine.punctuations.newest == 0
    scene.hosts.changes.clear()
    scene.tick()
    assert scene.engine.punctuations.newest == 5


def test_old_checkpoints_that_stay_are_told_of_and_end_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.tick()
    scene.tick()
    scene.acks(5)

    def away(*_: object) -> int:
        raise OSError("no route")

    monkeypatch.setattr(type(scene.engine.store), "prune", away)
    scene.tick()
    assert scene.engine.problems == ["old checkpoints stay: OSError: no route"]
    assert scene.engine.punctuations.newest == 5


@pytest.mark.parametrize(
    ("where", "what"), [("reach", "sources wait"), ("start", "the stream's clock waits")]
)
def test_trouble_outside_is_told_and_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, where: str, what: str
) -> None:
    def away(*_: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(type(scene.engine.ledger if where == "reach" else scene.engine.release), where, away)
        assert scene.tick()
    assert scene.engine.problems == [f"{what}: OSError: no route"]
    assert scene.engine.horizon == (0 if where == "reach" else 4)
    scene.tick()
    assert scene.engine.horizon > 0


# -- reports -----------------------------------------------------------------------------------------------------------


def test_what_hosts_say_is_kept(scene: Scene) -> None:
    scene.hosts.changes = {
        0: {"usage": {"in.0": Usage(0.5, 100)}, "problems": ("in.0: odd",), "staged": 0, "memory": 1},
        1: {
            "usage": {"mid.0": Usage(1.5, 70)},
            "outputs": (("out.0", 1, 7.0),),
            "problems": ("out.0: late",),
            "staged": 3,
            "disk": 9,
            "not_kept": ("out.0", "gone.0"),
        },
    }
    scene.tick()
    engine = scene.engine
    assert engine.usage == {"in.0": Usage(0.5, 100), "mid.0": Usage(1.5, 70)}
    assert engine.outputs == [("out.0", 1, 7.0)]
    assert engine.problems == ["in.0: odd", "out.0: late"]
    assert engine.staged == {"a#1": 0, "b#1": 3}
    assert engine.buffers == {"a#1": Held(1, 0, 0), "b#1": Held(0, 9, 0)}
    assert engine.not_kept == {"out.0"}, "of those at work"
    scene.hosts.changes = {1: {"staged": 1}}
    scene.tick()
    assert engine.staged == {"a#1": 0, "b#1": 1}
    assert engine.buffers == {"a#1": Held(0, 0, 0), "b#1": Held(0, 0, 0)}


def test_who_is_not_believed_any_more(scene: Scene) -> None:
    scene.tick()
    engine = scene.engine
    installed = {"mid.0": "0.0.0", "out.0": engine.installation["out.0"]}
    scene.hosts.changes = {
        0: {"failed": {"in.0": Failure(FailureKind.LOST_OUTPUT, "gone")}},
        1: {"installed": installed, "counters": {"out.0": {"keys": 2}}},
    }
    scene.tick()
    assert engine.failed == {
        "in.0": Failure(FailureKind.LOST_OUTPUT, "gone"),
        "mid.0": Failure(FailureKind.STATE_LOST),
    }
    assert engine.positions == {"out.0": 8}
    assert engine.bad_checkpoints == set()
    assert engine.counters == {"out.0": {"keys": 2}}
    scene.hosts.changes.clear()
    scene.tick()
    assert [c.hosted.keys() for c in scene.hosts.commands] == [{"out.0"}]
    assert engine.counters == {"out.0": {}}


def test_a_checkpoint_that_fails_a_partition_is_given_up(scene: Scene) -> None:
    scene.hosts.changes = {1: {"failed": {"mid.0": Failure(FailureKind.CHECKPOINT, "damaged")}}}
    scene.tick()
    assert scene.engine.bad_checkpoints == {0}
    assert scene.engine.failed == {"mid.0": Failure(FailureKind.CHECKPOINT, "damaged")}


def test_who_is_still_being_installed_is_not_at_work_and_is_sent_everything_when_it_is(scene: Scene) -> None:
    scene.hosts.changes = {1: {"positions": {"mid.0": 4}}}
    scene.tick()
    engine = scene.engine
    assert engine.installing == {"out.0"}
    assert engine.at_work == {"in.0": 4, "mid.0": 4}
    assert engine.positions["out.0"] == 0
    assert not engine.idle
    scene.hosts.changes.clear()
    scene.tick()
    assert engine.installing == set()
    assert all("out.0" not in command.resend for command in scene.hosts.commands)
    scene.tick()
    assert [command.resend for command in scene.hosts.commands] == [(), ("out.0",)], "by who sends to it"
    scene.tick()
    assert all(command.resend == () for command in scene.hosts.commands)


def test_a_node_that_is_gone_is_lost_with_what_it_had(scene: Scene) -> None:
    scene.hosts.changes = {1: {"counters": {"mid.0": {"keys": 3}}}}
    scene.tick()
    engine = scene.engine
    assert scene.tick({"a#1": "host-a"})
    assert engine.failed == dict.fromkeys(("mid.0", "out.0"), Failure(FailureKind.NODE_LOST))
    assert engine.counters.keys() == {"in.0"}
    assert engine.progress.nodes == ("a#1",)
    assert engine.progress.counters == {}
    assert scene.hosts.connected[-1] == ("host-a",)
    assert not scene.tick({})
    assert engine.positions == {}
    assert engine.progress.nodes == ()


def test_what_a_lost_partition_has_stored_counts_no_more(scene: Scene) -> None:
    scene.tick()
    scene.tick()
    scene.acks(5)
    del scene.hosts.changes[0]
    scene.tick()
    engine = scene.engine
    assert engine.punctuations._acks[5].keys() == {"mid.0", "out.0"}
    scene.tick({"a#1": "host-a"})
    assert engine.punctuations._acks[5] == {}


def test_who_is_lost_while_it_is_being_installed_is_waited_for_no_more(scene: Scene) -> None:
    scene.hosts.changes = {1: {"positions": {"mid.0": 4}}}
    scene.tick()
    assert scene.engine.installing == {"out.0"}
    scene.tick({"a#1": "host-a"})
    assert scene.engine.installing == set()


def test_an_ack_of_who_was_lost_counts_for_nothing(scene: Scene) -> None:
    scene.tick()
    scene.tick()
    engine = scene.engine
    late = Ack("out.0", engine.installation["out.0"], 5, file_of("out.0"))
    scene.hosts.changes = {1: {"failed": {"out.0": Failure(FailureKind.LOST_OUTPUT, "gone")}}}
    scene.tick()
    scene.hosts.changes = {1: {"acks": (late,)}}
    scene.tick()
    assert 5 in engine.punctuations.open
    assert "out.0" not in engine.punctuations._acks[5]
    assert engine.state_bytes["out.0"] == 0


def test_who_is_wanted_nowhere_is_dropped_without_a_failure(scene: Scene) -> None:
    scene.tick()
    scene.want(assignment={"in.0": "a#1", "mid.0": "b#1"})
    assert scene.engine.positions.keys() == {"in.0", "mid.0"}
    assert scene.engine.failed == {}
