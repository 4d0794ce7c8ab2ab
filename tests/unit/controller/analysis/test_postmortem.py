"""The post-mortem: facts of the record, and what the planners say would have been otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprise.controller.analysis.postmortem.counterfactual import counterfactuals
from reprise.controller.analysis.postmortem.markdown import markdown
from reprise.controller.analysis.postmortem.story import Story, make_story
from reprise.controller.cli.postmortem_export import export
from reprise.controller.errors import ReportError
from reprise.controller.status import document
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Incident, QueryTimeline
from reprise.scheduler.node_start import NodeStart, StartPhase
from tests.support import oncall


@pytest.fixture(scope="module")
def story() -> Story:
    found = oncall.played()
    return make_story(oncall.TOPOLOGY, found.closed[0], found.plans, oncall.START + 500)


def test_downtime_is_weighted_by_priority(story: Story) -> None:
    assert [(d.query, d.priority) for d in story.downtimes] == [
        ("count.3", 4),
        ("count.2", 3),
        ("count.1", 2),
    ]
    assert all(d.caught_up_at is not None for d in story.downtimes)
    by_hand = sum(d.priority * ((d.caught_up_at or 0) - d.lost_at) for d in story.downtimes) / 10
    assert story.lost_s == pytest.approx(by_hand)
    assert [free for _, _, free in story.arrivals] == [80, 80]


def test_the_model_agrees_with_what_happened(story: Story) -> None:
    found = counterfactuals(story)
    assert found is not None
    assert found.replayed.lost_s == pytest.approx(found.recorded.lost_s, abs=1.5)
    assert found.replayed.back.keys() == found.recorded.back.keys()


def test_a_closed_incident_says_of_no_query_that_it_is_still_down(story: Story) -> None:
    """What had not been seen back by then was not measured, and what is summed up over it is a lower bound."""
    times = dict(story.incident.queries)
    closed_at = story.incident.closed_at
    assert closed_at is not None
    times["count.1"] = QueryTimeline(closed_at - 60.0)
    times["count.2"] = replace(times["count.2"], relapses=2, up_s=1.5)
    page = markdown(replace(story, incident=replace(story.incident, queries=times)), None, [])
    assert "still down" not in page
    assert "1 not measured (at least 60.0 s); 2 relapses |" in page
    assert "| at least 60.0 s | 1 | 0 |" in page
    assert "| availability lost | at least " in page


def test_export_writes_page_pictures_and_records(story: Story, tmp_path: Path) -> None:
    seen = Observation(
        story.end, True, closed={story.incident.id: story.incident}, plans={p.id: p for p in story.plans}
    )
    curve = document(oncall.TOPOLOGY, seen).availability.points
    written = export(story, curve, tmp_path / "post")
    pictures = ["availability.svg", "queries.svg"]
    assert [path.name for path in written] == [f"{story.incident.id}.md", *pictures, "plans.json"]
    assert written[0].read_text().startswith(f"# Incident {story.incident.id} of oncall")
    assert all("<svg" in path.read_text() for path in written[1:3])


def test_the_page_says_how_nodes_started_and_nothing_where_that_is_not_on_record(story: Story) -> None:
    opened = story.incident.opened_at
    starts = {
        "n9#1": NodeStart({StartPhase.REQUESTED: opened + 5, StartPhase.READY: opened + 9.5}),
        "n8#1": NodeStart({StartPhase.HEARTBEAT: opened + 2}),
    }
    page = markdown(replace(story, incident=replace(story.incident, starts=starts)), None, [])
    told = page[page.index("## Starts of nodes") : page.index("## Plans")]
    assert told.index("| `n8#1` | - | - | - | - |") < told.index(
        "| `n9#1` | 5.0 | - | - | - | - | - | 4.5 | - | - |"
    )
    assert "Starts of nodes" not in markdown(story, None, [])


def test_a_folder_that_cannot_be_written(story: Story, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ReportError, match="not written"):
        export(story, (), blocked / "post")


def test_only_the_plans_of_the_incident_count(story: Story) -> None:
    other: Incident = replace(story.incident, id="inc-999999")
    assert make_story(oncall.TOPOLOGY, other, story.plans, 1.0).plans == ()


def test_what_was_skipped_is_told_with_what_is_marked_for_it(story: Story) -> None:
    assert "## Gaps" not in markdown(story, None, [])
    gap = replace(
        story.incident,
        skipped={"count.1": ((31, 40),)},
        marked={"count.1": ((31, 40), (51, 52)), "count.3": ((33, 33),)},
    )
    page = markdown(replace(story, incident=gap), None, [])
    told = page[page.index("## Gaps") : page.index("## Time line")]
    assert "13 batches of 2 queries" in told and "| `count.1` | 31 | 40 |" in told
    for row in ("`count.1` | 2 | 31 | 40 | 10", "`count.1` | 2 | 51 | 52 | 2", "`count.3` | 4 | 33 | 33 | 1"):
        assert f"| {row} |" in told


def test_an_answer_of_a_planner_that_is_no_json_is_said(story: Story, tmp_path: Path) -> None:
    odd = replace(story.plans[0], plan={**story.plans[0].plan, "value": float("inf")})
    with pytest.raises(ReportError, match="its records cannot be written"):
        export(replace(story, plans=(odd,)), (), tmp_path / "post")
