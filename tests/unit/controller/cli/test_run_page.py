"""What `reprise run` shows in a terminal: batch, nodes, the open incident, and queries as far as there are rows."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from reprise.controller.cli.run_page import headline, incident_line, nodes_line, page
from reprise.controller.status.query_state import QueryState, RunState, Status, state_of
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
    assert headline("oncall", away).endswith("  (ZooKeeper does not answer: last known state)")


def test_before_a_driver_reports_it_is_starting() -> None:
    state = state_of(QUERIES, Observation(1.0, True))
    assert headline("oncall", state) == "oncall  starting  queries: 4 waiting  weighted 0 %"
    assert nodes_line(state).plain == "nodes (0 alive)"
    assert incident_line(state) is None


def test_nodes_are_sorted_as_people_count_and_marked() -> None:
    nodes = dict(STEADY.observation.nodes)
    nodes |= {f"n{k}#1": replace(nodes["n1#1"], name=f"n{k}") for k in (10, 4)}
    seen = replace(STEADY.observation, nodes=nodes)
    state = replace(state_of(QUERIES, seen), frozen=frozenset({"n2"}))
    assert nodes_line(state).plain == "nodes n1 n2* n3 n4+ n10+ (5 alive, + hosts nothing, * frozen)"


def test_an_open_incident_is_told_with_its_newest_plan() -> None:
    assert incident_line(STEADY) is None
    line = incident_line(BURST)
    assert line is not None
    incident = BURST.observation.incident
    assert incident is not None
    first, second = line.plain.splitlines()
    assert first == (
        f"incident {incident.id} correlated, {incident.phase.value}, from checkpoint {incident.checkpoint}, "
        f"{len(incident.plans)} plans"
    )
    assert second.startswith(f"plan {incident.plans[-1]} ")


def test_where_rows_are_short_what_is_down_is_shown_and_the_rest_counted() -> None:
    lines = shown(BURST, rows=1)
    down = [q.id for q in BURST.queries if q.status is not Status.AVAILABLE]
    assert any(line.startswith(down[0]) for line in lines)
    assert any(line.startswith("and 3 more: ") for line in lines)
    assert not any(line.startswith("and ") for line in shown(BURST))
    assert lines[-2:] == ["  +3s kill n2", "  +3s kill n3"]


def test_a_long_reason_is_cut() -> None:
    long = replace(STEADY, queries=(QueryState("count.0", 1, Status.WAITING, 0, "x" * 300),))
    text = " ".join(shown(long, width=400))
    assert "x" * 109 + "…" in text and "x" * 110 not in text
