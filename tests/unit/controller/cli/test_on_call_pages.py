"""What the person on call sees: fits the screen, the worst first."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from rich.console import Console, RenderableType

from reprise.controller.analysis.simulate import simulate
from reprise.controller.cli.render import for_programs, span
from reprise.controller.cli.simulate_command import simulation_page
from reprise.controller.cli.status_page import LABEL, status_page
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.failure_domains import FailureDomainsView, FailureDomainView
from reprise.controller.status.model import NodeStartView, QueryView, RebalancingView, StandbysView
from reprise.controller.status.query_state import Status
from reprise.spark_jobs.topology.promise import Guarantee, Promise
from tests.support import oncall


@pytest.fixture(scope="module")
def found() -> StatusDocument:
    return document(oncall.TOPOLOGY, oncall.after_the_burst())


def shown(page: RenderableType, width: int = 80) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, height=24, no_color=True).print(page)
    return text.getvalue().rstrip("\n").split("\n")


def _many(document: StatusDocument, count: int) -> StatusDocument:
    states = (Status.AVAILABLE, Status.WAITING, Status.RECOVERING)
    items = tuple(
        QueryView(
            f"query-{i}.0", 1 + i % 10, states[i % 3], i, "needs 40 more " * 9, 5, (), 0, None, None, None
        )
        for i in range(count)
    )
    return replace(document, queries=replace(document.queries, items=items, total=count))


@pytest.mark.parametrize("count", [1, 12, 300])
def test_status_fits_80_by_24_however_many_queries_there_are(found: StatusDocument, count: int) -> None:
    lines = shown(status_page(_many(found, count), 24))
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)


def test_the_worst_and_most_valuable_come_first_and_the_rest_is_counted(found: StatusDocument) -> None:
    lines = shown(status_page(_many(found, 300), 24))
    start = next(i for i, line in enumerate(lines) if line.startswith("query "))
    first = lines[start + 1].split()
    assert first[3] == "waiting"
    assert first[1] == "10"
    rest = next(line for line in lines if line.startswith("and "))
    rows = lines.index(rest) - start - 1
    assert rest == f"and {300 - rows} more: {100 - rows} waiting, 100 recovering, 100 available"


def told(document: StatusDocument, wide: bool = False) -> dict[str, str]:
    """The lines above the table by their labels."""
    lines = shown(status_page(document, 24, wide=wide), width=600)
    return {line[:LABEL].strip(): line[LABEL:].rstrip() for line in lines}


def promised(found: StatusDocument, promise: Promise) -> StatusDocument:
    """Of `count`."""
    more = {"limited_because": promise.because, "given_up": promise.given_up}
    of = {"guarantee": promise.guarantee, "limited_by": promise.limited_by, **more}
    operators = (replace(o, **of) if o.name == "count" else o for o in found.graph.operators)
    return replace(found, graph=replace(found.graph, operators=tuple(operators)))


def above_their_cap(found: StatusDocument) -> StatusDocument:
    slow, full, *rest = found.nodes
    nodes = replace(slow, used=1350, cpu=1000, slowdown=1.35), replace(full, used=900, cpu=1000, slowdown=1.0)
    return replace(found, nodes=(*nodes, *rest))


def backed(found: StatusDocument) -> StatusDocument:
    one, two, *rest = found.partitions
    return replace(found, partitions=(replace(one, backed=True), replace(two, backed=False), *rest))


def in_incident(found: StatusDocument, **changes: Any) -> StatusDocument:
    assert found.incident is not None
    return replace(found, incident=replace(found.incident, **changes))


GIVEN_UP = Promise(Guarantee.PRECISE, given_up=("on_bad_record: skip of s",))
MARKED = {"count.1": (31, 33), "count.0": (30, 40)}
STARTS = (
    *(NodeStartView(f"n{k}#1", {"requested": 1.0, "ready": 5.5}, {"ready": 4.5}) for k in range(4)),
    NodeStartView("late#1", {"agent": 9.0, "heartbeat": 9.5}, {}),
)
ZONES = (
    *(FailureDomainView(*zone) for zone in (("a", ("n1#1", "n3#2"), 60, 20), (None, ("n4#1",), 10, 10))),
    *(FailureDomainView(str(k), (f"m{k}#1",), 1, 1) for k in range(4)),
)


@pytest.mark.parametrize(
    ("label", "change", "named"),
    [
        ("standbys", lambda d: replace(d, standbys=StandbysView(5, 3, 1, 4, 0, 0, 0)), "1 of 5.* 3 "),
        ("standbys", lambda d: replace(d, standbys=StandbysView(5, 3, 1, 4, 2, 0, 1)), ": 2,.* 0,.* 1$"),
        ("rebalance", lambda d: replace(d, rebalancing=RebalancingView({}, 0, d.time + 20)), "20s"),
        ("rebalance", lambda d: replace(d, rebalancing=RebalancingView({"p.0": "n3#1"}, 2, None)), "p.0.*n3#1.* 2 "),
        ("above cap", above_their_cap, r"\b1350m of 1000m, 1\.35 .*; n\d+ 900m of 1000m$"),
        ("outputs", lambda d: promised(d, Promise(Guarantee.GAP, ("parse",))), "^count gap .*parse"),
        ("outputs", lambda d: promised(d, GIVEN_UP), "^count precise .*on_bad_record: skip of s"),
        ("gaps", lambda d: in_incident(d, marked=MARKED), "^14 .*: count.0 30 to 40; count.1 31 to 33$"),
        ("gaps", lambda d: in_incident(d, marked=MARKED, marked_spans={"count.0": ((30, 30), (38, 40))}),
         "^7 .*: count.0 30 to 30, 38 to 40; "),
        ("new nodes", lambda d: in_incident(d, starts=STARTS), r"^late#1 heartbeat, n3#1 ready 4\.5 s.* 2 more$"),
        ("backups", backed, "^1 of 2 "),
        ("domains", lambda d: replace(d, failure_domains=FailureDomainsView("zone", 75, 15.5, ZONES)),
         r"^15\.5 .* 75 .* 6 .*\b20 with a \(n1 n3\), 60 .*; 10 with n4,.* 2 more; by zone$"),
        ("messages", lambda d: replace(d, chained="no janino"), "^wait for stages of jobs: no janino$"),
        ("problem", lambda d: replace(d, problems=("sink disk is full",)), "^sink disk is full$"),
    ],
)  # fmt: skip
def test_what_there_is_has_a_line_and_what_there_is_not_has_none(
    found: StatusDocument, label: str, change: Callable[[StatusDocument], StatusDocument], named: str
) -> None:
    assert label not in told(found)
    assert re.search(named, told(change(found))[label])


def test_wide_leaves_nothing_out(found: StatusDocument) -> None:
    full = replace(
        in_incident(backed(found), starts=STARTS),
        failure_domains=FailureDomainsView("zone", 75, 15.5, ZONES),
        problems=tuple(f"problem {k}" for k in range(5)),
    )
    lines = told(promised(full, Promise(Guarantee.PRECISE)), wide=True)
    assert lines["outputs"] == "count precise"
    assert all(start.node in lines["new nodes"] for start in STARTS)
    assert all(node in lines["domains"] for zone in ZONES for node in zone.nodes)
    assert lines["backups"].endswith(f": {found.partitions[1].id}")
    assert lines["problem"] == "problem 4", "the last"
    rows = shown(status_page(_many(found, 60), 24, wide=True), width=300)
    assert sum(line.startswith("query-") for line in rows) == 60


def test_wide_names_each_standby_with_where_it_is_and_in_which_failure_domain(found: StatusDocument) -> None:
    """All that are to be are named, also those that are not there."""
    near, gone, *rest = (p for p in found.partitions if p.operator == "count")
    there = {p.id: replace(p, standby=None) for p in rest} | {
        near.id: replace(near, node="n1#1", standby="n9#1", standby_position=7, standby_apart=True),
        gone.id: replace(gone, node=None, standby="n8#1"),
    }
    (n1,) = (n for n in found.nodes if n.id == "n1#1")
    nodes = replace(n1, labels={"zone": "x"}), replace(n1, id="n9#1", labels={"zone": "y"})
    operators = (replace(o, standbys=o.name == "count", failure_domain="zone") for o in found.graph.operators)
    document = replace(
        found,
        standbys=StandbysView(4, 2, 1, 1, 1, 0, 1),
        partitions=tuple(there.get(p.id, p) for p in found.partitions),
        nodes=nodes,
        graph=replace(found.graph, operators=tuple(operators)),
    )
    named = [f"{near.id} on n9#1 at 7 (y, from x)", f"{gone.id} on n8#1 not ready (?, from ?)"]
    assert told(document, wide=True)["standbys"].endswith(
        ", ".join([*named, *(f"{p.id} none" for p in rest)])
    )


def test_wide_folds_long_lines(found: StatusDocument) -> None:
    said = replace(found, problems=(f"{'x ' * 60}end",))
    for wide in (False, True):
        assert ("end" in " ".join(shown(status_page(said, 24, wide=wide), width=60))) is wide


def test_the_head_says_what_is_down_and_what_is_possible(found: StatusDocument) -> None:
    lines = told(found)
    assert shown(status_page(found, 24))[0].startswith("oncall  WAITING")
    for label, words in {
        "queries": "3 of 4 available, 1 waiting",
        "weighted": "80 %",
        "nodes": "2 ready, 2 lost (n2 n3)",
        "incident": "inc-000002 correlated, open 40s",
        "plan": "p2 arrival 10s ago",
    }.items():
        assert lines[label].startswith(words)


def test_a_lost_store_is_said_first(found: StatusDocument) -> None:
    assert "ZooKeeper" in shown(status_page(replace(found, connected=False), 24))[0]
    assert "ZooKeeper" not in shown(status_page(found, 24))[0]


def test_a_simulation_names_what_waits_in_the_end() -> None:
    found = simulate(oncall.resource(), oncall.steady(), ["n2", "n3"], [(30.0, 1)])
    lines = shown(simulation_page(found, False), width=200)
    assert found.waiting and found.at_least
    assert all(f"  {query}: {why}" in lines for query, why in found.waiting.items())
    assert any(found.at_least in line for line in lines)


def test_programs_get_the_same_as_json_and_yaml(
    found: StatusDocument, capsys: pytest.CaptureFixture[str]
) -> None:
    assert for_programs(found, "json")
    as_json = json.loads(capsys.readouterr().out)
    assert for_programs(found, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert not for_programs(found, "wide")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.04, "0.0s"), (9.94, "9.9s"), (59, "59s"), (80, "1m20s"), (3720, "1h02m")],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert span(seconds) == text
