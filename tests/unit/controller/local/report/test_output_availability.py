"""Latency, relative latency and availability on outputs whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reprise.controller.errors import ReportError
from reprise.controller.local.report.history import Writes, read_events
from reprise.controller.local.report.latency import Criterion, baseline, criterion_for
from reprise.controller.local.report.output_availability import (
    OutputAvailability,
    first_failure,
    output_availability,
)

CRITERION = Criterion(window_s=2.0, tolerance_s=1.0, interval_s=1.0)


def _writes(delays: list[float]) -> Writes:
    """Batch b is due at b seconds and written after its delay, never before the one before it."""
    due = np.arange(1.0, len(delays) + 1)
    written = np.maximum.accumulate(due + np.array(delays))
    return Writes(np.arange(1, len(delays) + 1), due, written)


def _outage(batches: int, first: int, back: float) -> Writes:
    """Batches from `first` on are written at `back` seconds at the earliest, otherwise after half a second."""
    return _writes([max(0.5, back - b) if b >= first else 0.5 for b in range(1, batches + 1)])


def _found(
    writes: dict[str, Writes], failure: float | None, done: bool = True, end: float = 0.0
) -> OutputAvailability:
    priorities = {query: index + 1 for index, query in enumerate(writes)}
    found = output_availability(writes, priorities, (0.0, end), failure, done, CRITERION)
    assert found is not None
    return found


def test_without_trouble_everything_is_available_all_the_time() -> None:
    found = _found({"a": _writes([0.5] * 40)}, None)
    assert found.queries["a"].available.all()
    assert found.lost_s == 0.0
    assert found.queries["a"].baseline_s == pytest.approx(0.5)
    assert np.allclose(found.queries["a"].relative[30:100], 1.0)


def test_a_silent_query_is_unavailable_from_when_its_next_batch_is_overdue() -> None:
    # batch 21, due at 21 s, comes at 30 s: the age passes 1.2 * 0.5 + 1.0 at 22.6 s
    found = _found({"a": _outage(60, 21, 30.0)}, 20.6)
    up = dict(zip(found.elapsed.round(2), found.queries["a"].available, strict=True))
    assert up[min(up, key=lambda t: abs(t - 22.4))]
    assert not up[min(up, key=lambda t: abs(t - 22.9))]
    assert not up[min(up, key=lambda t: abs(t - 29.9))]
    # the backlog is written at 30 s with its latency, which leaves the window two seconds later
    assert found.again_s("a") == pytest.approx(32.0 - 20.6, abs=0.6)


def test_the_lost_area_weighs_by_priority() -> None:
    light = _found({"a": _outage(60, 21, 30.0), "b": _writes([0.5] * 60)}, 20.6)
    heavy = _found({"b": _writes([0.5] * 60), "a": _outage(60, 21, 30.0)}, 20.6)
    assert light.lost_s == pytest.approx(9.4 / 3, abs=0.5)
    assert heavy.lost_s == pytest.approx(2 * light.lost_s, rel=0.01)
    assert light.again_s("b") == 0.0


def test_a_run_that_was_cut_off_does_not_make_a_dead_query_look_alive() -> None:
    dead = Writes(
        *(array[:20] for array in (_writes([0.5] * 60).batches, np.arange(1.0, 61), np.arange(1.5, 61.5)))
    )
    found = _found({"a": dead, "b": _writes([0.5] * 60)}, 20.6, done=False, end=62.0)
    assert found.again_s("a") is None
    assert found.queries["a"].latency_s[-1] == pytest.approx(62.25 - 21.0, abs=0.01)


def test_a_query_that_has_written_the_last_batch_of_an_ended_stream_is_available() -> None:
    found = _found({"a": _outage(40, 21, 60.0), "b": _writes([0.5] * 40)}, 20.6)
    assert found.again_s("a") == pytest.approx(60.0 - 20.6, abs=0.3)
    cut = _found({"a": _outage(40, 21, 60.0), "b": _writes([0.5] * 40)}, 20.6, done=False, end=60.0)
    assert cut.again_s("a") is None


def test_a_query_that_never_wrote_is_never_available() -> None:
    found = output_availability(
        {"b": _writes([0.5] * 9)}, {"a": 3, "b": 1}, (0.0, 9.0), None, True, CRITERION
    )
    assert found is not None
    assert not found.queries["a"].available.any()
    assert found.share.max() == pytest.approx(0.25)


def test_nothing_written_is_no_availability() -> None:
    assert output_availability({}, {"a": 1}, (0.0, 9.0), None, False, CRITERION) is None


def test_the_usual_latency_leaves_out_the_start_and_all_after_the_failure() -> None:
    writes = _writes([9.0, 8.0, 7.0, 6.0, 5.0] + [0.5] * 30 + [20.0] * 10)
    assert baseline(writes, 35.9) == pytest.approx(0.5, abs=0.4)
    assert baseline(_writes([0.5] * 3), 0.1) == 0.0


def test_the_criterion_is_stated_and_holds_three_batches() -> None:
    criterion = criterion_for(2.0)
    assert criterion.window_s == 6.0
    assert criterion.limit(10.0) == pytest.approx(12.0 + 3.0)


def test_the_failure_is_the_first_thing_broken_and_done() -> None:
    actions = [
        {"action": "stream-began", "time": 1.0},
        {"action": "kill", "time": 2.0, "error": "no node n9"},
        {"action": "freeze", "time": 3.0},
        {"action": "kill", "time": 4.0},
    ]
    assert first_failure(actions, [9.0]) == 3.0
    assert first_failure(actions[:1], [9.0]) == 9.0
    assert first_failure([], []) is None


def _line(query: str, batch: int, at: float) -> str:
    return json.dumps({"query": query, "batch": batch, "at": at, "due": float(batch)})


def test_the_first_write_of_a_batch_counts(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join([_line("a", 2, 2.5), _line("a", 1, 1.5), _line("a", 2, 9.0), ""]))
    found = read_events(path)["a"]
    assert found.batches.tolist() == [1, 2]
    assert found.latency.tolist() == [0.5, 0.5]


def test_an_unfinished_last_line_is_left_out_other_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(_line("a", 1, 1.5) + '\n{"query": "a", "ba')
    assert read_events(path)["a"].batches.tolist() == [1]
    path.write_text('{"query": "a"}\n' + _line("a", 1, 1.5) + "\n")
    with pytest.raises(ReportError, match="line 1"):
        read_events(path)
    assert read_events(tmp_path / "none.jsonl") == {}


@pytest.mark.parametrize(
    "line",
    ["7", "[]", "null", '{"query": "a", "batch": 1e999, "at": 1, "due": 1}', "[" * 5000,
     '{"query": "a", "batch": 1, "at": NaN, "due": 1}', '{"query": "a", "batch": 1, "at": 1, "due": 1e999}',
     '{"query": "a", "batch": "one", "at": 1, "due": 1}'],
    ids=lambda line: line[:40],
)  # fmt: skip
def test_a_line_that_is_no_event_is_named_unless_the_driver_was_killed_at_it(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(f"{_line('a', 1, 1.5)}\n{line}\n{_line('a', 2, 2.5)}\n")
    with pytest.raises(ReportError, match=r"events\.jsonl: line 2: not an output event"):
        read_events(path)
    path.write_text(f"{_line('a', 1, 1.5)}\n{line}")
    assert read_events(path)["a"].batches.tolist() == [1]
