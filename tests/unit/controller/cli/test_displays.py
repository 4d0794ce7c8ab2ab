"""What a person sees while a topology runs, with and without a terminal: batch, nodes, the open incident, and queries as far
as there are rows."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from reprise.controller.cli.live import Lines, Page, Silent, action_text, display_for
from reprise.controller.cli.render import plain_console
from reprise.controller.cli.run_page import headline, incident_line, nodes_line, page
from reprise.controller.status.query_state import Status, state_of
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper.observation import Observation
from tests.support import oncall

QUERIES = view_of(oncall.resource()).queries
STEADY, BURST = (state_of(QUERIES, seen) for seen in (oncall.steady(), oncall.after_the_burst()))
KILL = {"time": 1.0, "elapsed": 1.0, "action": "kill", "nodes": ["n3"]}


def _console(terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=140, height=40), text


def shown(rows: int = 30) -> list[str]:
    console, text = _console(False)
    console.print(page("oncall", BURST, ["+3s kill n2", "+3s kill n3"], rows))
    return text.getvalue().splitlines()


def test_the_head_counts_queries_and_says_how_far_everything_is() -> None:
    assert headline("oncall", STEADY) == (
        "oncall  batch 20  checkpoint 15  queries: 4 available  weighted 100 %"
    )
    away = replace(STEADY, observation=replace(STEADY.observation, connected=False))
    assert "ZooKeeper" in headline("oncall", away)
    nothing = state_of(QUERIES, Observation(1.0, True))
    assert "4 waiting" in headline("oncall", nothing) and "0 alive" in nodes_line(nothing).plain


def test_nodes_are_sorted_as_people_count_and_marked() -> None:
    nodes = dict(STEADY.observation.nodes)
    nodes |= {f"n{k}#1": replace(nodes["n1#1"], name=f"n{k}") for k in (10, 4)}
    seen = replace(STEADY.observation, nodes=nodes)
    state = replace(state_of(QUERIES, seen), frozen=frozenset({"n2"}))
    assert nodes_line(state).plain.startswith("nodes n1 n2* n3 n4+ n10+ (5 alive")


def test_where_rows_are_short_what_is_down_is_shown_and_the_rest_counted() -> None:
    lines = shown(rows=1)
    down = [q.id for q in BURST.queries if q.status is not Status.AVAILABLE]
    assert any(line.startswith(down[0]) for line in lines)
    assert any(line.startswith("and 3 more: ") for line in lines)
    assert not any(line.startswith("and ") for line in shown())
    assert lines[-2:] == ["  +3s kill n2", "  +3s kill n3"]


def test_without_a_terminal_only_changes_are_told() -> None:
    console, text = _console(False)
    lines = Lines(console, "oncall")
    for _ in range(3):
        lines.watch(STEADY, [])
    for _ in range(2):
        lines.watch(BURST, [KILL])
    first, killed, incident, *plans, last = text.getvalue().splitlines()
    assert "4 available" in first and "1 waiting" in last and killed.endswith("kill n3")
    assert incident.startswith("incident inc-000002 correlated")
    assert [line.split()[1] for line in plans] == [plan.id for plan in oncall.played().plans[:2]]
    lines.watch(STEADY, [KILL])
    assert "incident closed" in text.getvalue()


def test_plans_of_one_look_are_told_in_the_order_in_which_they_were_made() -> None:
    plan = oncall.played().plans[0]
    names = [f"inc-000001-p{number}" for number in range(1, 13)]
    plans = {name: replace(plan, id=name) for name in reversed(names)}
    console, text = _console(False)
    lines = Lines(console, "oncall")
    for _ in range(2):
        lines.watch(replace(STEADY, observation=replace(STEADY.observation, plans=plans)), [])
    told = [line.split()[1] for line in text.getvalue().splitlines() if line.startswith("plan ")]
    assert told == names


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal_has_a_page_with_colours_unless_it_is_to_have_none(
    monkeypatch: pytest.MonkeyPatch, colours: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    console, text = _console(True)
    with Page(console, "oncall") as display:
        display.watch(BURST, [KILL])
    assert ("\x1b[1;31m" in text.getvalue()) is colours
    incident, line = BURST.observation.incident, incident_line(BURST)
    assert incident is not None and line is not None and incident_line(STEADY) is None
    assert f"plan {incident.plans[-1]} " in line.plain
    for words in ("count.1", incident.id, incident.plans[-1], "kill n3"):
        assert words in text.getvalue()


def test_the_display_suits_the_console() -> None:
    assert isinstance(display_for(_console(True)[0], "x", quiet=False), Page)
    assert isinstance(display_for(_console(False)[0], "x", quiet=False), Lines)
    assert type(display_for(_console(True)[0], "x", quiet=True)) is Silent


@pytest.mark.parametrize("terminal", [False, True])
def test_troubles_are_told_once(terminal: bool) -> None:
    full = [f"p.{k}: batch {k} waits: [Errno 28] No space left on device" for k in range(3)]
    console, text = _console(terminal)
    with display_for(console, "oncall", quiet=False) as display:
        for problem in full:
            seen = replace(STEADY.observation, problems=(problem,))
            display.watch(replace(STEADY, observation=seen), [])
    assert text.getvalue().count("problem: ") == 1


def test_what_was_not_done_is_loud() -> None:
    assert "no node n9" in action_text({"action": "kill", "error": "no node n9"})


def test_a_terminal_that_is_not_utf_8_shows_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))
    plain_console().print("café …")
    sys.stdout.flush()
    assert shown.getvalue() == "café ?\n".encode("latin-1")
