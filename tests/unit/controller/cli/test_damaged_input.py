"""Whatever is in the files that a command is given: one line that says what is wrong, an exit code of docs/cli.md, no
traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import main
from reprise.controller.cli.app import COMMANDS
from reprise.controller.local.report.layout import new_record, prepare
from reprise.controller.local.report.write import write_report
from reprise.spark_jobs.topology import load_topology, override
from tests.unit.controller.local.report.test_report_of_a_run import INCIDENT, MINIMAL, PLAN, _write_events

DOCS = Path(__file__).parents[4] / "docs" / "cli.md"
CODES = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCS.read_text(), re.MULTILINE)}
GARBAGE = {
    "cut": b'{"topology": "t", "inc',
    "list": b"[]",
    "null": b"null",
    "not text": b"\xff\xfe\x00",
    "deep": b"[\n" * 1_100,  # a line each, or YAML looks back over all of them at each
    "nan": b'{"incidents": NaN, "plans": [], "timeline": [], "topology": NaN}',
    "wrong kinds": b'{"incidents": {}, "plans": {}, "timeline": {}, "topology": []}',
    "wrong items": b'{"incidents": [7], "plans": [null], "timeline": [[]], "topology": {}, "strategy": 1, "outcome": 2}',
    "nothing in it": b'{"incidents": [{}], "plans": [{}], "timeline": [{}], "topology": "t", "strategy": "", "outcome": ""}',
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run leaves behind."""
    out = tmp_path_factory.mktemp("finished") / "out"
    resource = override(load_topology(MINIMAL), {"batch.interval": "1s"})
    layout = prepare(out, resource, resume=False)
    _write_events(layout, 1000.0, 21, 30.0)
    record = new_record(resource) | {
        "zero": 1000.0, "outcome": "done", "ended": 1042.0, "pid": 2**30,
        "actions": [{"time": 1020.6, "action": "kill", "nodes": ["n3"]}],
    }  # fmt: skip
    write_report(layout, resource, record, [INCIDENT], [PLAN])
    layout.record.write_text(json.dumps(record))
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    for name, data in files.items():
        (out / name).write_bytes(data)
    return out


def reprise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


READERS = {
    "history": (["history", "--out"], ["run.json", "incident.json"]),
    "history as JSON": (["history", "-o", "json", "--out"], ["run.json", "incident.json"]),
    "history with plans": (["history", "--plans", "--out"], ["incident.json"]),
    "plan": (["plan", "--from-incident"], ["topology.json", "plans.json"]),
    "export": (
        ["incident", "export", "--to", "exported", "--out"],
        ["run.json", "topology.json", "plans.json"],
    ),
    "status": (["status", "--out"], ["run.json"]),
    "checkpoints": (["checkpoints", "--out"], ["topology.json"]),
    "report": (
        ["report", "--to", "b.tar.gz", "--out"],
        ["run.json", "topology.json", "incident.json", "plans.json"],
    ),
}
"""Command, and the files that it reads."""
OVER = {
    "queries": ["queries", "--out"],
    "explain": ["explain", "count.0", "--out"],
    "simulate": ["simulate", "--lose", "n1", "--out"],
    "pause": ["pause", "--out"],
    "resume": ["resume", "--out"],
    "status": ["status", "--out"],
}
"""What cannot be asked of a run that has ended."""


def said(result: Result) -> None:
    """Nothing unforeseen, and where it is no: why, in one line."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in CODES
    assert "Traceback" not in result.output
    if result.exit_code not in (0, 1):
        (line,) = [line for line in result.stderr.splitlines() if line.lower().startswith("error: ")]
        assert len(line) > len("error: ") + 10


@pytest.mark.parametrize("name", [*sorted(READERS.keys() - OVER.keys()), *OVER])
def test_a_run_that_has_ended_is_read_or_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: dict[str, bytes], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = OVER.get(name) or READERS[name][0]
    result = reprise(*arguments, folder(tmp_path, finished))
    said(result)
    assert result.exit_code == (4 if name in OVER else 0), result.output


@pytest.mark.long
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_of_a_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: dict[str, bytes], name: str, garbage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    out = folder(tmp_path, finished)
    arguments, files = READERS[name]
    for file in files:
        (out / file).write_bytes(GARBAGE[garbage])
        result = reprise(*arguments, out)
        (out / file).write_bytes(finished[file])
        try:
            said(result)
        except AssertionError as error:
            raise AssertionError(
                f"{name} with {file} {garbage}: {result.exception!r} {result.output}"
            ) from error


@pytest.mark.long
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "-f"],
        ["graph", "-f"],
        ["plan", "-i"],
        ["run", "--out", "o", "-f"],
        ["run", "-f", str(MINIMAL), "--out", "o", "--faults"],
        ["records", "load", "--zk", "127.0.0.1:1", "--root", "/r"],
        ["simulate", "--zk", "127.0.0.1:1", "--root", "/r", "-f"],
    ],
    ids=["validate", "graph", "plan", "run", "faults", "records", "simulate"],
)  # fmt: skip
def test_a_damaged_file_of_the_caller_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], garbage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if garbage in ("list", "null") and "--faults" in arguments:
        return  # a file without faults is one
    path = tmp_path / "given"
    path.write_bytes(GARBAGE[garbage])
    result = reprise(*arguments, path)
    said(result)
    assert result.exit_code == 2, result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_there_is_not_is_said(command: str) -> None:
    result = reprise(command, "--frobnicate")
    said(result)
    assert result.exit_code == 2
    assert "--frobnicate" in result.stderr


def test_the_codes_are_those_of_the_page() -> None:
    assert {0, 1, 2, 3, 4, 5, 130} == CODES


@pytest.mark.wide
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("pid", [None, "x", [], 1e999]),
        ("actions", [None, 7, "x", [7], [{}], [{"action": "arrived", "time": "x", "nodes": ["n"]}]]),
        ("ended", [None, "x", [], 1e999, 10**400]),
    ],
    ids=["pid", "actions", "ended"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["history", "export", "status"])
def test_a_damaged_field_of_the_record_of_a_run_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    finished: dict[str, bytes],
    name: str,
    field: str,
    values: list[object],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = folder(tmp_path, finished)
    record = json.loads(finished["run.json"])
    for value in values:
        (out / "run.json").write_text(json.dumps({**record, field: value}))
        result = reprise(*READERS[name][0], out)
        said(result)
        if name == "export" and field != "pid":
            assert result.exit_code == 2 and f"run.json: {field}: " in result.stderr, (value, result.output)
