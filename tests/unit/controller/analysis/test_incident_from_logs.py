"""The coordinator's lines tell an incident as its record does, whoever was killed in between."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reprise.controller import logs
from reprise.controller.analysis.from_logs import incidents_in, main
from reprise.controller.coordinator.incident_log import log_changes
from reprise.controller.status.timeline import timeline
from reprise.scheduler import Incident, Kind, Phase, PlanRecord
from reprise.scheduler.incident import EventName, Trigger

OPENED = Incident("inc-000007", Kind.CORRELATED, Phase.SETTLING, 10.125, 4, 2, 4, 11.0).log(
    10.125, EventName.OPENED, "2 'nodes'"
)
PLAN = PlanRecord(
    "inc-000007-p1", "inc-000007", 11.5, Trigger.FIRST, True, 4, 2, {}, (),
    {"queries": ["a.0"], "value": 3, "bound": 4}, {}, 0.1, {"b.0": "no room"},
)  # fmt: skip
PLANNED = replace(OPENED.log(11.5, EventName.PLAN, "inc-000007-p1 first"), plans=(PLAN.id,))
CLOSED = replace(
    PLANNED.log(20.0, EventName.RESTORED).log(25.0, EventName.CLOSED, "checkpoint=9"), closed_at=25.0
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    logger = logging.getLogger("reprise.coordinator")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(before)


def expected() -> list[tuple[float, str, str]]:
    return [(line["time"], line["what"], line["detail"]) for line in timeline([], [CLOSED], [PLAN], 0.0)]


def test_what_is_told_step_by_step_is_the_record(log: io.StringIO) -> None:
    log_changes(None, OPENED, [])
    log_changes(OPENED, PLANNED, [PLAN])
    log_changes(PLANNED, CLOSED, [])
    assert incidents_in(log.getvalue().splitlines()) == {"inc-000007": expected()}


def test_a_successor_that_tells_it_again_changes_nothing_and_makes_up_for_what_is_missing(
    log: io.StringIO,
) -> None:
    log_changes(None, OPENED, [])  # killed before it could log the plan
    log_changes(None, PLANNED, [PLAN])
    log_changes(PLANNED, CLOSED, [])
    log_changes(None, CLOSED, [PLAN])
    assert incidents_in(log.getvalue().splitlines()) == {"inc-000007": expected()}


def test_every_line_has_the_incident_s_id_and_plans_have_theirs(log: io.StringIO) -> None:
    log_changes(None, CLOSED, [PLAN])
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {e["incident"] for e in entries} == {"inc-000007"}
    assert [e["plan"] for e in entries if e["event"] == "plan"] == ["inc-000007-p1"]


def test_anything_else_in_the_log_is_passed_over(log: io.StringIO) -> None:
    log_changes(None, OPENED, [])
    noise = [
        "Picked up JAVA_OPTIONS",
        "{broken",
        "[1]",
        '{"event": "plan"}',
        '{"event": "incident", "incident": "x", "time": "?"}',
        '{"event": "incident", "incident": "x", "name": "opened", "detail": "", "time": NaN}',
        '{"event": "plan", "incident": "x", "plan": "p", "summary": "", "time": 1e999}',
        f'{{"event": "plan", "incident": "x", "plan": "p", "summary": "", "time": 1{"0" * 400}}}',
        '{"event": {"plan": 1}, "incident": "x", "time": 1}',
        '{"event": ["plan"]}',
        "[" * 100_000,
        '"incident"',
    ]
    found = incidents_in([*noise, *log.getvalue().splitlines()])
    assert list(found) == ["inc-000007"]


def test_it_is_printed_with_dates_in_the_order_of_time_though_lines_come_in_any(
    log: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_changes(None, OPENED, [])
    log_changes(OPENED, PLANNED, [PLAN])
    far = json.dumps(
        {"event": "incident", "incident": "inc-000009", "name": "opened", "detail": "", "time": 1e15}
    )
    lines = [far, *reversed(log.getvalue().splitlines())]
    monkeypatch.setattr("sys.stdin", lines)
    main()
    assert [line.split("  ") for line in capsys.readouterr().out.splitlines()] == [
        ["inc-000007"],
        ["", "1970-01-01T00:00:10.125+00:00", "opened", "2 'nodes'"],
        ["", "1970-01-01T00:00:11.500+00:00", "plan", expected()[1][2]],
        ["inc-000009"],
        ["", "9999-12-31T23:59:59.000+00:00", "opened"],
    ]
