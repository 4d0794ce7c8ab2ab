"""What `reprise run` shows in a terminal: batch, nodes, the open incident, and queries as far as there are rows."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from reprise.controller.cli.run_page import headline, incident_line, nodes_line, page
from reprise.controller.status.query_state import RunState, Status, state_of
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper.observation import Observation
from tests.support import oncall

QUERIES = view_of(oncall.resource()).queries
STEADY, BURST = (state_of(QUERIES, seen) for seen in (oncall.steady(), oncall.after_the_burst()))


def shown(state: RunState, rows: int = 30, width: int = 120) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(page("oncall", state, ["+3s kill n2", "+3s kill n3"], rows))
    return file.getvalue().splitlines()


def test_the_head_counts_queries_and_says_how_far_everything_is() -> None:
    assert headline("oncall", STEADY) == (
        "oncall  batch 20  checkpoint 15  queries: 4 available  weighted 100 %"
    )
    away = replace(STEADY, observation=replace(STEADY.observation, connected=False))
    assert "ZooKeeper" in headline("oncall", away)
    nothing = state_of(QUERIES, Observation(1.0, True))
    assert "4 waiting" in headline("oncall", nothing) and "0 alive" in nodes_line(nothing).plain


def test_an_open_incident_is_told_with_its_newest_plan() -> None:
    assert incident_line(STEADY) is None
    line, incident = incident_line(BURST), BURST.observation.incident
    assert line is not None and incident is not None
    assert incident.id in line.plain and f"plan {incident.plans[-1]} " in line.plain


def test_nodes_are_sorted_as_people_count_and_marked() -> None:
    nodes = dict(STEADY.observation.nodes)
    nodes |= {f"n{k}#1": replace(nodes["n1#1"], name=f"n{k}") for k in (10, 4)}
    seen = replace(STEADY.observation, nodes=nodes)
    state = replace(state_of(QUERIES, seen), frozen=frozenset({"n2"}))
    assert nodes_line(state).plain.startswith("nodes n1 n2* n3 n4+ n10+ (5 alive")


def test_where_rows_are_short_what_is_down_is_shown_and_the_rest_counted() -> None:
    lines = shown(BURST, rows=1)
    down = [q.id for q in BURST.queries if q.status is not Status.AVAILABLE]
    assert any(line.startswith(down[0]) for line in lines)
    assert any(line.startswith("and 3 more: ") for line in lines)
    assert not any(line.startswith("and ") for line in shown(BURST))
    assert lines[-2:] == ["  +3s kill n2", "  +3s kill n3"]
