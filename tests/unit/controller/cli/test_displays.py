"""What a person sees while a topology runs, with and without a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from reprise.controller.cli.live import Lines, Page, Silent, action_text, display_for
from reprise.controller.status.query_state import QueryState, RunState, Status
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, Incident, Kind, Node, Phase, PlanRecord, Progress
from reprise.scheduler.incident import Trigger

NODES = {"n1#1": Node("n1", 1, 1000), "n2#1": Node("n2", 1, 1000)}
WELL = RunState(
    Observation(
        0.0, True, NODES, Progress("1", horizon=7, nodes=frozenset(NODES)), desired=Desired(1, 1, 0, "1")
    ),
    (QueryState("top.0", 9, Status.AVAILABLE, 0), QueryState("low.0", 1, Status.AVAILABLE, 1)),
)
INCIDENT = Incident("inc-1", Kind.CORRELATED, Phase.WAITING, 0.0, 5, 2, 2, 0.0, plans=("inc-1-p1",))
PLAN = PlanRecord(
    "inc-1-p1", "inc-1", 1.0, Trigger.FIRST, True, 5, 2, {}, (),
    {"queries": ["top.0"], "value": 9, "bound": 9, "optimal": True, "algorithm": "ilp"}, {"top.0": "n1#1"}, 0.0,
    {"low.0": "needs 40 more"},
)  # fmt: skip
ILL = RunState(
    replace(WELL.observation, incident=INCIDENT, plans={"inc-1-p1": PLAN}),
    (
        QueryState("top.0", 9, Status.RECOVERING, 4, "catching up"),
        QueryState("low.0", 1, Status.WAITING, 6, "needs 40 more"),
    ),
    frozenset({"n2#1"}),
)
KILL = {"time": 1.0, "elapsed": 1.0, "action": "kill", "nodes": ["n3"]}


def _console(terminal: bool, **more: Any) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=140, height=40, **more), text


def test_without_a_terminal_only_changes_are_told() -> None:
    console, text = _console(False)
    lines = Lines(console, "pair")
    for _ in range(3):
        lines.watch(WELL, [])
    assert len(text.getvalue().splitlines()) == 1
    lines.watch(ILL, [KILL])
    lines.watch(ILL, [KILL])
    told = text.getvalue().splitlines()[1:]
    assert told[0].endswith("kill n3")
    assert told[1] == "incident inc-1 correlated, waiting"
    assert "brings back top.0 (summed priority 9, the most that is possible); 1 query waits" in told[2]
    assert "1 recovering, 1 waiting  weighted 0 %" in told[3]
    assert len(told) == 4
    lines.watch(WELL, [KILL])
    assert "incident closed" in text.getvalue()


def test_the_page_shows_why_a_query_waits() -> None:
    console, text = _console(True)
    with Page(console, "pair") as page:
        page.watch(ILL, [KILL])
    shown = text.getvalue()
    for words in ("top.0", "needs 40 more", "inc-1", "batch 7", "n2+", "kill n3"):
        assert words in shown


def test_no_color_is_respected(monkeypatch: Any) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console, text = _console(True)
    with Page(console, "pair") as page:
        page.watch(ILL, [])
    assert "\x1b[31m" not in text.getvalue()
    assert "\x1b[32m" not in text.getvalue()


def test_the_display_suits_the_console() -> None:
    assert isinstance(display_for(_console(True)[0], "x", quiet=False), Page)
    assert isinstance(display_for(_console(False)[0], "x", quiet=False), Lines)
    quiet = display_for(_console(True)[0], "x", quiet=True)
    assert type(quiet) is Silent


@pytest.mark.parametrize("terminal", [False, True])
def test_troubles_are_told_once(terminal: bool) -> None:
    full = [f"p.{k}: batch {k} waits: [Errno 28] No space left on device" for k in range(3)]
    console, text = _console(terminal)
    with display_for(console, "pair", quiet=False) as display:
        for problem in full:
            display.watch(replace(WELL, observation=replace(WELL.observation, problems=(problem,))), [])
    assert text.getvalue().count("problem: ") == 1


def test_what_was_not_done_is_loud() -> None:
    assert "NOT DONE: no node n9" in action_text({"action": "kill", "error": "no node n9"})


def test_plans_of_one_look_are_told_in_the_order_in_which_they_were_made() -> None:
    names = [f"inc-000001-p{number}" for number in range(1, 13)]
    plan = PlanRecord(names[0], "inc-000001", 5.0, Trigger.FIRST, False, 0, 1, {}, (), {}, {}, 0.0, {})
    plans = {name: replace(plan, id=name) for name in reversed(names)}
    console, text = _console(False)
    lines = Lines(console, "pair")
    for _ in range(2):
        lines.watch(replace(WELL, observation=replace(WELL.observation, plans=plans)), [])
    told = [line.split()[1] for line in text.getvalue().splitlines() if line.startswith("plan ")]
    assert told == names
