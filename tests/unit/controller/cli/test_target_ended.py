"""A run that has ended is asked for its last state, as one that goes on is asked for the present one."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import exits
from reprise.controller.cli.app import main
from reprise.controller.cli.target_ended import EndedTarget
from reprise.controller.local.report.layout import LAST
from reprise.controller.status import records
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import Incident, Kind, Phase
from reprise.scheduler.model import Desired, Node, Progress
from reprise.spark_jobs.topology import load_topology
from reprise.spark_jobs.topology.changes import settings_of
from tests.unit.controller.cli.test_target_local import MINIMAL, running

ENDED = time.time() - 7200.0
EVERY = ("tweets.0", "parser.0", "count.0", "count.1")
OPEN = Incident("inc-000001", Kind.CORRELATED, Phase.WAITING, ENDED - 60, 40, 2, 3, ENDED - 59)


def ended(out: Path, last: Any = None, **fields: Any) -> Path:
    """The folder of a run that was interrupted in an incident: nothing has a place for `count.1`."""
    running(out, outcome="interrupted", ended=ENDED, **fields)
    placed = dict.fromkeys(EVERY[:3], "n1#1")
    seen = Observation(
        ENDED - 1, connected=True, nodes={"n1#1": Node("n1", 1, 400)},
        progress=Progress("1", horizon=44, checkpoint=40, nodes=frozenset({"n1#1"}), positions=dict.fromkeys(placed, 44)),
        desired=Desired(5, 2, 40, "1", assignment=placed), incident=OPEN, checkpoints=frozenset({40}),
    )  # fmt: skip
    settings = {**settings_of(load_topology(MINIMAL)), "operators[count].output.priority": 9}
    found = {"settings": settings, "records": records(seen)} if last is None else last
    (out / LAST).write_text(json.dumps(found))
    return out


def reprise(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_it_says_how_all_stood_and_when_that_was(tmp_path: Path) -> None:
    result = reprise("status", "--out", ended(tmp_path / "out"))
    assert result.exit_code == exits.DONE, result.output
    said = re.compile(r"the run has ended \(interrupted\), [2-9]h\d\dm ago")
    assert said.search(result.stderr)
    assert said.search(result.stdout)
    assert "inc-000001" in result.stdout
    assert any("count.1" in line and "waiting" in line for line in result.stdout.splitlines()), result.stdout


def test_programs_read_that_it_is_what_was_known_last_with_the_settings_of_then(tmp_path: Path) -> None:
    result = reprise("status", "--out", ended(tmp_path / "out"), "--watch", "-o", "json")
    document = json.loads(result.stdout)
    assert (document["connected"], document["batch"], document["incident"]["id"]) == (False, 44, "inc-000001")
    assert document["time"] == ENDED - 1
    assert 9 in {query["priority"] for query in document["queries"]["items"]}


@pytest.mark.parametrize(
    "words",
    [("queries",), ("explain", "count.1")],
)
def test_other_questions_are_answered_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = reprise(*words, "--out", ended(tmp_path / "out"))
    assert result.exit_code in (exits.DONE, exits.NO), (result.output, result.stderr)
    assert "has ended" in result.stderr


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("drain", "n1")])
def test_nobody_is_there_to_be_told_anything(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = reprise(*words, "--out", ended(tmp_path / "out"))
    assert result.exit_code == exits.NOT_RUNNING, (result.output, result.stderr)
    assert "nothing runs in" in result.stderr


@pytest.mark.parametrize(
    "last", [[], {}, {"settings": None}, {"settings": None, "records": {"time": "?"}}, {"settings": 1}]
)
def test_what_no_run_has_written_is_named(tmp_path: Path, last: Any) -> None:
    result = reprise("status", "--out", ended(tmp_path / "out", last))
    assert result.exit_code == exits.BAD_INPUT
    assert f"{LAST}: not the last state of a run" in result.stderr


def test_a_run_that_was_killed_with_all_it_knew_has_none(tmp_path: Path) -> None:
    out = ended(tmp_path / "out", pid_started=-1.0)
    (out / LAST).unlink()
    result = reprise("status", "--out", out)
    assert result.exit_code == exits.NOT_RUNNING
    assert "nothing runs in" in result.stderr


def test_a_record_without_the_time_of_its_end_gives_that_of_the_last_look(tmp_path: Path) -> None:
    out = ended(tmp_path / "out")
    record = json.loads((out / "run.json").read_text())
    for strange in ({}, {"ended": "late"}, {"ended": float("inf")}):
        (out / "run.json").write_text(json.dumps({k: v for k, v in record.items() if k != "ended"} | strange))
        with EndedTarget(out, "", lambda: ENDED + 7200) as target:
            assert "2h00m ago" in target.observation().problems[0]
            assert target.actions() == [] and target.files() == {} and target.resources() is None
