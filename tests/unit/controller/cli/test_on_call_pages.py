"""What the person on call sees: fits the screen, the worst first, every colour with its word."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console, RenderableType

from reprise.controller.analysis.explain import explain
from reprise.controller.analysis.simulate import simulate
from reprise.controller.cli import main
from reprise.controller.cli.explain_command import explanation_page
from reprise.controller.cli.plan_command import plan_view_page
from reprise.controller.cli.render import for_programs, span
from reprise.controller.cli.simulate_command import simulation_page
from reprise.controller.cli.status_page import status_page
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.failure_domains import FailureDomainsView, FailureDomainView
from reprise.controller.status.model import NodeStartView, QueryView, RebalancingView, StandbysView
from reprise.controller.status.query_state import Status
from reprise.spark_jobs.topology.promise import NO_PROMISE, Guarantee, Promise
from tests.support import oncall


@pytest.fixture(scope="module")
def found() -> StatusDocument:
    return document(oncall.TOPOLOGY, oncall.after_the_burst())


def shown(page: RenderableType, width: int = 80, height: int = 24, **more: bool) -> list[str]:
    text = io.StringIO()
    Console(
        file=text, width=width, height=height, force_terminal=bool(more.get("colour")), no_color=not more
    ).print(page)
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


def test_standbys_have_a_line_where_there_are_any(found: StatusDocument) -> None:
    assert not any(line.startswith("standbys") for line in shown(status_page(found, 24)))
    with_them = replace(found, standbys=StandbysView(5, 3, 1, 4, 0, 0, 0))
    (line,) = [x for x in shown(status_page(with_them, 24)) if x.startswith("standbys")]
    assert line.split(maxsplit=1)[1] == "1 of 5 wanted could go on now, 3 are placed"


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (None, []),
        (RebalancingView({}, 0, 30.0), ["load is looked at in 20s"]),
        (RebalancingView({"count.0": "n3#1"}, 2, None), ["count.0 goes to n3#1, 2 partitions follow"]),
        (RebalancingView({"count.0": "n3#1"}, 0, None), ["count.0 goes to n3#1"]),
    ],
)
def test_load_that_is_levelled_has_a_line(
    found: StatusDocument, view: RebalancingView | None, said: list[str]
) -> None:
    lines = shown(status_page(replace(found, rebalancing=view, time=10.0), 24))
    assert [x.split(maxsplit=1)[1] for x in lines if x.startswith("rebalance")] == said


def test_nodes_above_their_cap_have_a_line(found: StatusDocument) -> None:
    assert not any(line.startswith("above cap") for line in shown(status_page(found, 24)))
    slow, full, *rest = found.nodes
    nodes = (
        replace(slow, used=1350, cpu=1000, slowdown=1.35),
        replace(full, used=900, cpu=1000, slowdown=1.0),
    )
    above = replace(found, nodes=(*nodes, *rest))
    (line,) = [x for x in shown(status_page(above, 24), 120) if x.startswith("above cap")]
    assert line.split(maxsplit=2)[2] == (
        f"{slow.name} 1350m of 1000m, 1.35 times as slow; {full.name} 900m of 1000m"
    )
    query = next(q.id for q in found.queries.items)
    there = tuple(replace(p, node=slow.id) for p in found.partitions)
    told = explain(replace(above, partitions=there), query)
    assert told.slower == (f"{slow.name} is to run 1350m of 1000m: about 1.35 times as slow",)
    assert "1.35 times" in "\n".join(shown(explanation_page(told), 120, 60))
    assert explain(found, query).slower == ()


def promising(document: StatusDocument, **outputs: Promise) -> StatusDocument:
    operators = tuple(
        replace(
            o, guarantee=p.guarantee, limited_by=p.limited_by, limited_because=p.because, given_up=p.given_up
        )
        if (p := outputs.get(o.name)) is not None
        else o
        for o in document.graph.operators
    )
    return replace(document, graph=replace(document.graph, operators=operators))


def test_an_output_that_is_less_than_precise_has_a_line_with_who_limits_it(found: StatusDocument) -> None:
    gap, precise = Promise(Guarantee.GAP, ("parse",)), Promise(Guarantee.PRECISE)
    well, less = promising(found, count=precise), promising(found, count=gap)
    assert not any(line.startswith("outputs") for line in shown(status_page(well, 24)))
    (line,) = [x for x in shown(status_page(well, 24, wide=True)) if x.startswith("outputs")]
    assert line.split(maxsplit=1)[1] == "count precise"
    (line,) = [x for x in shown(status_page(less, 24)) if x.startswith("outputs")]
    assert line.split(maxsplit=1)[1] == "count gap (amnesia of parse)"
    assert "output       gap (amnesia of parse)" in shown(explanation_page(explain(less, "count.3")))
    but = promising(found, count=replace(precise, given_up=("on_bad_record: skip of s, some are left out",)))
    (line,) = [x for x in shown(status_page(but, 24), width=120) if x.startswith("outputs")]
    assert line.split(maxsplit=1)[1] == "count precise (on_bad_record: skip of s, some are left out)"
    older = promising(found, count=NO_PROMISE)
    assert not any(x.startswith("output") for x in shown(explanation_page(explain(older, "count.3"))))


def test_what_lacks_rows_in_the_open_incident_has_a_line(found: StatusDocument) -> None:
    assert found.incident is not None
    assert not any(line.startswith("gaps") for line in shown(status_page(found, 24)))
    one = replace(found.incident, marked={"count.1": (31, 33), "count.0": (30, 40)})
    two = replace(one, marked_spans={"count.0": ((30, 30), (38, 40)), "count.1": ((31, 33),)})
    for incident, said in (
        (one, "14 batches may lack rows, and are marked: count.0 30 to 40; count.1 31 to 33"),
        (two, "7 batches may lack rows, and are marked: count.0 30 to 30, 38 to 40; count.1 31 to 33"),
    ):
        gap = replace(found, incident=incident)
        (line,) = [x for x in shown(status_page(gap, 24), width=120) if x.startswith("gaps")]
        assert line.split(maxsplit=1)[1] == said


def test_standbys_say_in_which_failure_domain_they_are(found: StatusDocument) -> None:
    """All that are to be are named, also those that are not there."""
    operator = next(o for o in found.graph.operators if len(o.partitions) > 1)
    own = [p for p in found.partitions if p.operator == operator.name]
    near, gone, *rest = own
    node = next(n for n in found.nodes if n.id == near.node)
    placed = {p.id: replace(p, standby=None) for p in rest} | {
        near.id: replace(near, standby="n9#1", standby_position=7, standby_apart=True),
        gone.id: replace(gone, standby="n8#1", node=None),
    }
    document = replace(
        found,
        standbys=StandbysView(len(own), 2, 1, 1, 1, 0, 1),
        partitions=tuple(placed.get(p.id, p) for p in found.partitions),
        nodes=(
            *(n for n in found.nodes if n.id != node.id),
            replace(node, labels={"zone": "x"}),
            replace(node, id="n9#1", labels={"zone": "y"}),
        ),
        graph=replace(
            found.graph,
            operators=tuple(
                replace(o, standbys=True, failure_domain="zone") if o is operator else o
                for o in found.graph.operators
            ),
        ),
    )
    said = "in another failure domain: 1, in the same: 0, not known: 1"
    lines = shown(status_page(document, 24), width=200)
    (line,) = [x for x in lines if x.startswith("standbys")]
    assert line.endswith(f"; {said}")
    (line,) = [x for x in shown(status_page(document, 24, wide=True), width=600) if x.startswith("standbys")]
    named = [f"{near.id} on n9#1 at 7 (y, from x)", f"{gone.id} on n8#1 not ready (?, from ?)"]
    assert line.endswith(f"{said}: " + ", ".join([*named, *(f"{p.id} none" for p in rest)]))


def test_failure_domains_have_a_line_with_what_each_would_take(found: StatusDocument) -> None:
    assert not any(line.startswith("domains") for line in shown(status_page(found, 24)))
    zones = [("a", ("n1#1", "n3#2"), 60, 60), ("b", ("n2#1",), 60, 20), (None, ("n4#1",), 10, 10)]
    more = [(str(k), (f"m{k}#1",), 1, 1) for k in range(3)]
    items = tuple(FailureDomainView(*zone) for zone in (*zones, *more))
    document = replace(found, failure_domains=FailureDomainsView("zone", 75, 15.5, items))
    said = "15.5 of a priority of 75 would be lost with one of 6 on average"
    few = (
        "60 with a (n1 n3); 20 with b (n2), 60 without standbys; 10 with n4, domain not known; 1 with 0 (m0)"
    )
    every = "60 with a (n1#1 n3#2); 20 with b (n2#1), 60 without standbys; 10 with n4#1, domain not known; 1 with 0 (m0#1)"
    for wide, named in ((False, f"{few}; and 2 more"), (True, f"{every}; 1 with 1 (m1#1); 1 with 2 (m2#1)")):
        lines = shown(status_page(document, 24, wide=wide), width=400)
        (line,) = [x for x in lines if x.startswith("domains")]
        assert line.split(maxsplit=1)[1] == f"{said}: {named}; by zone"


def test_upstream_backups_have_a_line_where_there_are_any(found: StatusDocument) -> None:
    assert not any(line.startswith("backups") for line in shown(status_page(found, 24)))
    one, two, *rest = found.partitions
    backed = replace(found, partitions=(replace(one, backed=True), replace(two, backed=False), *rest))
    for wide, named in ((False, ""), (True, f"; from a checkpoint: {two.id}")):
        (line,) = [x for x in shown(status_page(backed, 24, wide=wide)) if x.startswith("backups")]
        assert line.split(maxsplit=1)[1] == f"1 of 2 could be fed again now{named}"


def test_the_head_says_what_is_down_and_what_is_possible(found: StatusDocument) -> None:
    text = "\n".join(shown(status_page(found, 24)))
    for words in (
        "oncall  WAITING",
        "3 of 4 available, 1 waiting",
        "80 % of the summed priority is available; the capacity allows 80 %",
        "2 ready, 2 lost (n2 n3)",
        "inc-000002 correlated, open 40s; 2 of 3 queries back",
        "p2 arrival 10s ago: 2 queries worth 7 (optimal), 2/2 partitions up",
    ):
        assert words in text


def test_wide_leaves_nothing_out_where_lines_are_short(found: StatusDocument) -> None:
    problem = "3 queries are up to 30 batches behind; one look cannot say whether they advance, so look again"
    said = replace(found, problems=(problem,))
    narrow = " ".join(shown(status_page(said, 24, wide=True), width=60))
    assert "so look again" in narrow and "…" not in narrow.partition("query ")[0]
    assert "so look again" not in " ".join(shown(status_page(said, 24), width=60)), "a line each"


def test_how_far_new_nodes_are_is_said_and_the_newest_come_first(found: StatusDocument) -> None:
    assert found.incident is not None
    assert not any("new nodes" in line for line in shown(status_page(found, 24)))
    starts = [NodeStartView(f"n{k}#1", {"requested": 1.0, "ready": 5.5}, {"ready": 4.5}) for k in range(4)]
    starts.append(NodeStartView("late#1", {"agent": 9.0, "heartbeat": 9.5}, {}))
    said = replace(found, incident=replace(found.incident, starts=tuple(starts)))
    (line,) = [line for line in shown(status_page(said, 24), width=200) if "new nodes" in line]
    assert line.split(maxsplit=2)[2].rstrip() == (
        "late#1 heartbeat, n3#1 ready 4.5 s after its request, n2#1 ready 4.5 s after its request, and 2 more"
    )
    assert "n0#1 ready" in " ".join(shown(status_page(said, 24, wide=True), width=300))


def test_wide_leaves_nothing_out(found: StatusDocument) -> None:
    lines = shown(status_page(_many(found, 60), 24, wide=True), width=300)
    assert sum(line.startswith("query-") for line in lines) == 60


def test_a_lost_store_and_problems_are_said_first(found: StatusDocument) -> None:
    broken = replace(found, connected=False, problems=("sink disk is full",))
    lines = shown(status_page(broken, 24))
    assert "ZooKeeper does not answer: last known state" in lines[0]
    assert any(line.startswith("problem") and "sink disk is full" in line for line in lines)


def test_colour_never_stands_alone(found: StatusDocument) -> None:
    """Without colours the same words are there."""
    plain_text = shown(status_page(found, 24))
    coloured = "\n".join(shown(status_page(found, 24), colour=True))
    assert "\x1b[" in coloured
    assert "\x1b[" not in "\n".join(plain_text)
    assert "waiting" in "\n".join(plain_text)


def test_explanation_and_simulation_and_plan_fit_their_lines(found: StatusDocument) -> None:
    assert found.plan is not None
    pages = [
        explanation_page(explain(found, "count.1")),
        simulation_page(simulate(oncall.resource(), oncall.steady(), ["n2"]), False),
        plan_view_page(found.plan),
    ]
    for page in pages:
        assert all(len(line) <= 80 for line in shown(page))
    text = "\n".join(shown(pages[0]))
    assert "comes in at  120m free in sum, exactly" in text
    assert "1 more of 80m each" in text


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which topology? give --out DIR"),
        (["--out", "x", "--zk", "h"], "three ways: give one"),
        (["--out", "x", "name"], "three ways: give one"),
        (["--zk", "h"], "belong together"),
    ],
)
@pytest.mark.parametrize("command", ["status", "queries", "pause", "simulate"])
def test_one_topology_is_meant(command: str, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, [command, *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_explain_takes_one_query() -> None:
    result = CliRunner().invoke(main, ["explain", "a", "b", "c", "--out", "x"])
    assert result.exit_code == 2
    assert "give QUERY, or NAME and QUERY" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_this_program(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_REPRISE_COMPLETE" in result.output


def test_commands_and_options_are_completed() -> None:
    def complete(words: str) -> str:
        environment = {
            "_REPRISE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        return CliRunner().invoke(main, prog_name="reprise", env=environment).output

    assert "plain,simulate" in complete("reprise sim")
    assert "plain,--arrive" in complete("reprise simulate --a")
