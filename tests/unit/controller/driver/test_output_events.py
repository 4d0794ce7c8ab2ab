"""The lines of a run's events: times to a tenth of a millisecond, and none where nobody reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprise.controller.driver import output_events
from reprise.controller.driver.output_events import OutputEvents


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_when_a_batch_was_written_and_when_it_was_due(tmp_path: Path) -> None:
    events = OutputEvents(tmp_path / "events.jsonl")
    events.write([("out.0", 7, 1000.123456, 999.987654)])
    events.write([("out.1", 8, 1001.0, 1000.5)])
    events.close()
    assert lines(tmp_path / "events.jsonl") == [
        {"query": "out.0", "batch": 7, "at": 1000.1235, "due": 999.9877},
        {"query": "out.1", "batch": 8, "at": 1001.0, "due": 1000.5},
    ]


def test_what_waits_is_bounded_and_the_newest_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_events, "WAITING", 100)
    events = OutputEvents(Path("/dev/full"))
    for batch in range(9):
        with pytest.raises(OSError, match="No space left"):
            events.write([("out.0", batch, 1.0, 1.0)])
    events.close()
    events.path = tmp_path / "events.jsonl"
    events.write([])
    assert [line["batch"] for line in lines(events.path)] == [0, 1], "the second line goes beyond the bound"


def test_without_a_file_nothing_is_kept() -> None:
    events = OutputEvents(None)
    events.write([("out.0", 1, 1.0, 1.0)])
    assert events._waiting == b""
