"""Spot traces in their three forms become the same changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reprise.controller.local.errors import FaultFileError
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.faults.traces import read_trace

EVENTS = """# comment
0,add,a
0,add,b
0,add,c
60000,remove,b
120000,add,d
180000,remove,a
180000,remove,d
"""


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_names_of_the_trace_become_the_runs(tmp_path: Path) -> None:
    changes = read_trace(_file(tmp_path, EVENTS), 3, 0.0)
    assert changes == [(60.0, ("n2",), 0), (120.0, (), 1), (180.0, ("n1", "n4"), 0)]


def test_what_happens_to_nodes_that_the_run_does_not_have_is_left_out(tmp_path: Path) -> None:
    assert read_trace(_file(tmp_path, EVENTS), 1, 0.0) == [(120.0, (), 1), (180.0, ("n1",), 0)]


def test_a_fleet_never_loses_its_last_node(tmp_path: Path) -> None:
    assert read_trace(_file(tmp_path, "0,add,a\n1000,remove,a\n"), 1, 0.0) == []


def test_a_start_inside_the_trace_takes_the_fleet_of_that_moment(tmp_path: Path) -> None:
    # a and c live at 60 s: they are n1 and n2
    assert read_trace(_file(tmp_path, EVENTS), 2, 60.0) == [(60.0, (), 1), (120.0, ("n1", "n3"), 0)]


@pytest.mark.parametrize(
    "text",
    [
        "0,8\n100,8\n100,5\n200,6\n",
        "2020-11-20, 10:00:00, 8\n2020-11-20, 10:01:40, 5\n2020-11-20, 10:03:20, 6\n",
    ],
)
def test_a_series_of_counts_takes_the_youngest_nodes(tmp_path: Path, text: str) -> None:
    assert read_trace(_file(tmp_path, text), 4, 0.0) == [(100.0, ("n4", "n3", "n2"), 0), (200.0, (), 1)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_dates_of_a_series_are_utc(tmp_path: Path, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour is missing on that day in New York."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        text = "2024-03-10,01:30:00,4\n2024-03-10,02:30:00,3\n2024-03-10,03:30:00,5\n"
        found = read_trace(_file(tmp_path, text), 4, 0.0)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [at for at, _, _ in found] == [3600.0, 7200.0]


@pytest.mark.parametrize(
    "text", ["0,add,a\nx,add,b\n", "0,add,a\n5,drop,b\n", "0,8\n1,many\n", "1\n", "a,b,c,d\n"]
)
def test_a_wrong_row_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(FaultFileError, match="row") as caught:
        read_trace(_file(tmp_path, text), 4, 0.0)
    assert caught.value.file.endswith("trace.csv")


def test_speed_filter_and_limit(tmp_path: Path) -> None:
    _file(tmp_path, EVENTS)
    item = {"at": "5s", "trace": "trace.csv", "speedup": 60}
    everything = parse_faults([item], "F.yaml", 3, tmp_path)
    assert [(f.action, f.trigger.value, f.trigger.delay_s) for f in everything] == [
        ("kill", 5.0, 1.0),
        ("add", 5.0, 2.0),
        ("kill", 5.0, 3.0),
    ]
    assert [f.action for f in parse_faults([{**item, "only": "adds"}], "F.yaml", 3, tmp_path)] == ["add"]
    assert len(parse_faults([{**item, "only": "kills", "limit": 1}], "F.yaml", 3, tmp_path)) == 1
