"""NexMark beside other engines: the events that are sent, the search of a rate, and the check of results; no broker."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks import nexmark
from benchmarks.nexmark import Step, Trial
from benchmarks.nexmark_feed import Sent, epoch, events, lines
from benchmarks.nexmark_queries import QUERIES, topology, wrong
from reprise.spark_jobs.topology import override
from tests.support.nexmark import Played, played

KINDS = ["person", "auction"]
PACE = Sent(4000, 12_000, 1_700_000_000_000_000, 3000, 0.0)


def step(rate: int, growth: float = 0.0, *, sender_late: bool = False, cpu: float = 4.0) -> Step:
    return Step(rate, 0.1, 0.2, growth, cpu, sender_late)


def run_of(query: str) -> Played:
    """The topology of the benchmark over generated events: 6 s with 1,000 of each source in a second."""
    changes: dict[str, object] = {"batch.interval": "500ms"}
    for kind in QUERIES[query].kinds:
        changes[f"sources[{kind}].class"] = "reprise.sources:NexmarkSource"
        of = {"rate_of": KINDS} if kind in KINDS else {}
        changes[f"sources[{kind}].with"] = {
            "kind": kind,
            "rate": 1000,
            "interval": "500ms",
            "batches": 12,
            **of,
        }
    return played(override(topology(query, "localhost:9092", 2), changes))


def test_parts_of_a_pace_are_the_events_of_the_whole() -> None:
    whole = events(KINDS, PACE, PACE.first, PACE.end)
    parts = [events(KINDS, PACE, 4000, 4400), events(KINDS, PACE, 4400, 12_000)]
    for kind in KINDS:
        assert [row for part in parts for row in part[kind].to_pylist()] == whole[kind].to_pylist()


def test_of_four_events_one_is_a_person_and_each_is_due_in_its_turn() -> None:
    found = events(KINDS, PACE, PACE.first, PACE.end)
    assert epoch(KINDS) == 4
    assert epoch(["bid"]) == 1
    assert (found["person"].num_rows, found["auction"].num_rows) == (2000, 6000)
    due = sorted(found["person"]["time"].to_pylist() + found["auction"]["time"].to_pylist())
    assert due == [PACE.began_us + i * 1_000_000 // PACE.rate for i in range(8000)]
    assert due[-1] == PACE.ended_us
    assert len(set(found["auction"]["id"].to_pylist())) == 6000


@pytest.mark.parametrize("kind", ["person", "auction", "bid"])
def test_messages_are_rows_as_json(kind: str) -> None:
    table = events([kind], PACE, 4000, 4100)[kind]
    assert [json.loads(line) for line in lines(table)] == table.to_pylist()


@pytest.mark.parametrize("most", [3_000, 79_999, 80_000, 100_000, 500_000])
def test_the_search_ends_near_the_greatest_rate(most: int) -> None:
    asked: list[int] = []

    def kept_up(rate: int) -> bool:
        asked.append(rate)
        return rate <= most

    nexmark.search(kept_up, 80_000)
    found = max(rate for rate in asked if rate <= most)
    assert most / found <= nexmark.NEAR
    assert min(rate for rate in asked if rate > most) / found <= nexmark.NEAR
    assert len(asked) == len(set(asked)) <= 10


def test_the_search_does_not_go_beyond_its_ends() -> None:
    asked: list[int] = []
    nexmark.search(lambda rate: asked.append(rate) is None, 80_000)
    assert max(asked) == nexmark.FASTEST
    nexmark.search(lambda rate: asked.append(rate) is not None, 80_000)
    assert min(asked) >= nexmark.SLOW / 2


def test_a_step_whose_results_grow_older_is_late() -> None:
    young, old = np.full(100, 0.5), np.full(100, 1.6)
    assert nexmark.step_of(1000, young, young, 1.0, sender_late=False).kept_up
    assert not nexmark.step_of(1000, young, old, 1.0, sender_late=False).kept_up
    assert not nexmark.step_of(1000, young + 10, young + 10, 1.0, sender_late=False).kept_up
    assert not nexmark.step_of(1000, young, young, 1.0, sender_late=True).kept_up
    nothing = nexmark.step_of(1000, young, young[:0], 1.0, sender_late=False)
    assert not nothing.kept_up
    assert nothing.p50 == math.inf


def test_a_rate_that_the_sender_did_not_follow_is_a_lower_bound() -> None:
    trial = Trial("q1", "flink", steps=[step(80), step(160), step(320, sender_late=True), step(240, 2.0)])
    assert (trial.sustained, trial.sender_was_late) == (160, False)
    trial.steps.append(step(200, sender_late=True))
    assert (trial.sustained, trial.sender_was_late) == (160, True)
    assert nexmark.grid([trial]).rows[0][:2] == ("Q1, Flink", "≥ 160")


def test_ratios_are_those_of_the_worst_query() -> None:
    trials = [
        Trial("q1", "reprise", steps=[step(100)], half=step(50, cpu=4.0)),
        Trial("q1", "flink", steps=[step(200)], half=step(100, cpu=3.0)),
        Trial("q1", "structured", steps=[step(200)], half=step(100, cpu=3.0)),
        Trial("q3", "reprise", steps=[step(300)], half=step(150, cpu=4.0)),
        Trial("q3", "flink", steps=[step(200)], half=step(100, cpu=8.0)),
        Trial("q3", "structured", steps=[step(200)], half=step(100, cpu=8.0), reason="a result is missing"),
    ]
    assert nexmark.ratios(trials) == {
        "events/s reprise / flink": 0.5,
        "events a CPU second reprise / flink": 0.75,
    }


@pytest.mark.parametrize("query", QUERIES)
def test_the_topology_gives_what_the_check_expects(query: str) -> None:
    run = run_of(query)
    until = max(max(table["time"].to_pylist()) for table in run.events.values()) - 100_000
    found = [json.dumps({k: v for k, v in row.items() if k != "batch"}).encode() for row in run.output]
    assert wrong(query, run.events, found, until) == ""


def test_the_check_notices_missing_and_repeated_results() -> None:
    run = run_of("q12")
    found = [json.dumps({k: v for k, v in row.items() if k != "batch"}).encode() for row in run.output]
    until = max(row["time"] for row in run.output)
    assert "1 are missing, and 0 are wrong or too many" in wrong("q12", run.events, found[1:], until)
    assert "0 are missing, and 1 are wrong or too many" in wrong("q12", run.events, [*found, found[0]], until)
    assert "of 0 results" in wrong("q12", run.events, found, 0)
