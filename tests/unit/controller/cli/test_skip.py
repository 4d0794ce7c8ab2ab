"""`reprise skip`: what it says before anything happens, what it refuses, and that nothing is written without a yes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import exits, skip_command
from reprise.controller.cli.app import main
from reprise.controller.cli.target import Address
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Desired, Node, Poison, Progress, SkipWish
from reprise.scheduler.wishes import annotated
from reprise.spark_jobs.topology import load_text
from reprise.spark_jobs.topology.graph import expand
from tests.support.fake_target import FakeTarget
from tests.support.hashtags import SKIPPED

RESOURCE = load_text(SKIPPED)
PARTITIONS = tuple(expand(RESOURCE).partitions)
BAD = "window.1"


def seen(*absent: str, **more: object) -> Observation:
    at = {p: "n1#1" for p in PARTITIONS if p not in absent}
    nodes = {"n1#1": Node("n1", 1, 4000)}
    progress = Progress(
        "1", 7, 1, frozenset(nodes), dict.fromkeys(at, 50), horizon=50, checkpoint=40, kept_since=40
    )
    poison = Poison("1", dict.fromkeys(absent, "poison: x"))
    found = Observation(1.0, True, nodes, progress, desired=Desired(7, 1, 40, "1", at), poison=poison)
    return replace(found, **more)  # type: ignore[arg-type]


def skip(monkeypatch: pytest.MonkeyPatch, target: FakeTarget, *words: str) -> Result:
    monkeypatch.setattr(Address, "open", lambda _: target)
    return CliRunner().invoke(main, ["skip", *words, "--out", "x"])


def test_it_says_what_begins_anew_and_who_else_will_lack_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen("parse.0"))
    result = skip(monkeypatch, target, BAD, "--yes")
    assert result.exit_code == 0, result.output
    anew, missing, _, *others, last = result.output.splitlines()
    assert anew.endswith(": parse.0") and BAD in missing and last == "written"
    assert [line.split()[0] for line in others] == ["window.0", "window.2", "all.0", "best.0"]
    assert target.asked == [(BAD, True)]


def test_without_a_yes_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen(BAD))
    result = skip(monkeypatch, target, BAD)
    assert result.exit_code == exits.NO
    assert "begin anew, without what they knew: window.1" in result.output
    assert "nothing was asked for; --yes asks for it" in result.output
    monkeypatch.setattr(skip_command, "_confirmed", lambda: True)
    assert skip(monkeypatch, target, BAD).exit_code == 0
    assert target.asked == [(BAD, True)]


def test_what_is_well_cannot_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen("parse.0"))
    assert skip(monkeypatch, FakeTarget(RESOURCE, seen()), BAD, "--yes").exit_code == exits.NO
    wrong = skip(monkeypatch, target, "window.9", "--yes")
    assert wrong.exit_code == exits.BAD_INPUT
    assert "no query 'window.9'; there are window.0" in wrong.output
    source = skip(monkeypatch, FakeTarget(RESOURCE, seen("tweets.0")), BAD, "--yes")
    assert "nothing of window.1 can be skipped: all of its operators are at work" in source.output
    assert target.asked == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"operators[window].class": "reprise.operators:KeyedCount", "operators[window].with": {"keys": ["tag"]},
          "operators[best].with": {"by": "count", "k": 5, "keys": ["tag"], "scope": "batch"}},
         "operator 'window', which reads it, is deterministic"),
        ({"checkpoint.state": "paged"}, "is not built for `checkpoint.state: paged`"),
        ({"operators[parse].availability": "upstream-backup"}, "nothing is skipped of an operator with 'upstream-backup'"),
        ({"batch.order": "arrival"}, "is not tried with `batch.order: arrival`"),
        ({"recovery.scope": "global"}, "everything goes back to the checkpoint"),
    ],
)  # fmt: skip
def test_what_amnesia_is_refused_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str
) -> None:
    target = FakeTarget(load_text(SKIPPED, changes=changes), seen("parse.0"))
    result = skip(monkeypatch, target, BAD, "--yes")
    assert result.exit_code == exits.NO
    assert reason in result.output
    assert target.asked == []


@pytest.mark.parametrize("on_cluster", [False, True])
def test_where_what_an_operator_gives_waits_for_its_standby_nothing_is_skipped(
    monkeypatch: pytest.MonkeyPatch, on_cluster: bool
) -> None:
    """The coordinator would say so, and the person would have been told that rows will be lost."""
    shown = seen("parse.0")
    assert shown.progress is not None
    told = replace(shown, progress=replace(shown.progress, output_waits=frozenset({"best.0"})))
    target = FakeTarget(RESOURCE, told)
    monkeypatch.setattr(Address, "on_cluster", property(lambda _: on_cluster))
    result = skip(monkeypatch, target, BAD, "--yes")
    assert result.exit_code == exits.NO
    assert "nothing of window.1 can be skipped now: an operator is not deterministic" in result.output
    assert "will be missing" not in result.output
    assert target.asked == []


def test_what_was_asked_for_is_not_asked_for_twice_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen("parse.0", wishes={BAD: SkipWish("w1")}))
    again = skip(monkeypatch, target, BAD, "--yes")
    assert again.exit_code == 0
    assert "is to be skipped already" in again.output
    assert target.asked == []
    assert skip(monkeypatch, target, BAD, "--undo").output == "written\n"
    assert target.asked == [(BAD, False)]


def test_what_is_under_way_is_not_said_to_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = seen("parse.0")
    assert shown.desired is not None
    taken = replace(shown.desired, anew={"parse.0": "u.1"}, skips={annotated(BAD): "u.1"})
    target = FakeTarget(RESOURCE, replace(shown, desired=taken, poison=None))
    late = skip(monkeypatch, target, BAD, "--undo")
    assert late.exit_code == exits.NO
    assert "it is under way already and goes on: parse.0 begin anew" in late.output
    again = skip(monkeypatch, target, BAD, "--yes")
    assert again.exit_code == exits.NO
    assert "it is under way already: parse.0 begin anew" in again.output
    assert target.asked == [(BAD, False)]
    assert shown.progress is not None
    for refused in ({"parse.0": "u.0"}, {"best.0": "u.1"}):  # an earlier wish, and another partition
        other = replace(shown, desired=taken, poison=None, progress=replace(shown.progress, refused=refused))
        assert skip(monkeypatch, FakeTarget(RESOURCE, other), BAD, "--yes").exit_code == exits.NO
    told = replace(
        shown, desired=taken, poison=None, progress=replace(shown.progress, refused={"parse.0": "u.1"})
    )
    assert skip(monkeypatch, FakeTarget(RESOURCE, told), BAD, "--yes").exit_code == 0, (
        "somebody may try again"
    )
    shown = seen()
    assert shown.desired is not None
    over = FakeTarget(RESOURCE, replace(shown, desired=replace(taken, assignment=shown.desired.assignment)))
    assert skip(monkeypatch, over, BAD, "--undo").exit_code == 0
