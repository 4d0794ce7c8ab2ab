"""The command line without a cluster: what it answers, and how it says no."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import main
from reprise.controller.cli.app import COMMANDS
from reprise.controller.cli.exits import guarded
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.manifest import Manifest

EXAMPLES = Path(__file__).parents[4] / "examples"
MINIMAL = str(EXAMPLES / "minimal.yaml")


def reprise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches_with_an_example(name: str) -> None:
    result = reprise(name, "--help")
    assert result.exit_code == 0
    assert f"reprise {name} " in result.output


def test_help_lists_all_commands_and_the_exit_codes() -> None:
    result = reprise("--help")
    assert all(name in result.output for name in COMMANDS)
    assert "Exit codes:" in result.output


def test_help_does_not_import_spark() -> None:
    program = "import sys; from reprise.controller.cli import main; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.wide
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_the_examples_are_valid(path: Path) -> None:
    result = reprise("validate", "-f", path)
    assert result.exit_code == 0, result.output
    assert "valid; " in result.output


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_run_refuses_bad_input_before_it_touches_anything(tmp_path: Path) -> None:
    faults = _write(tmp_path / "F.yaml", "- {at: 1s, kill: [n1], add: 2}")
    out = tmp_path / "out"
    for arguments, words in [
        (["--faults", faults], "F.yaml: [0]: needs exactly one action"),
        (["--faults", tmp_path / "none.yaml"], "cannot be read"),
        (["--set", "recovery.strategie=blocking"], "did you mean 'strategy'"),
        (["--set", "recovery.algorithm=best-densty"], "spec.recovery.algorithm"),
        (["--set", "recovery"], "PATH=VALUE"),
        (["--set", "sources[nobody].with.rate=1"], "nobody"),
        (["--nodes", "0"], "--nodes"),
        (["--timeout", "soon"], "not a duration"),
        (["--strategy", "hope"], "hope"),
    ]:
        result = reprise("run", "-f", MINIMAL, "--out", out, *arguments)
        assert result.exit_code == 2, arguments
        assert words in result.stderr
    assert not out.exists()


def test_run_does_not_mix_results(tmp_path: Path) -> None:
    (tmp_path / "sink").mkdir()
    result = reprise("run", "-f", MINIMAL, "--out", tmp_path)
    assert result.exit_code == 2
    assert "--resume" in result.stderr


def test_graph_as_text_and_as_picture(tmp_path: Path) -> None:
    result = reprise("graph", "-f", MINIMAL)
    assert "count.0" in result.output
    picture = tmp_path / "g.svg"
    assert reprise("graph", "-f", MINIMAL, "--to", picture).exit_code == 0
    assert "<svg" in picture.read_text()
    assert reprise("graph", "-f", MINIMAL, "--to", tmp_path / "g.gif").exit_code == 2


def test_compare_says_no_with_exit_code_1(tmp_path: Path) -> None:
    for name, data in (("a", "x"), ("b", "y")):
        folder = tmp_path / name / "sink" / "count" / "0"
        folder.mkdir(parents=True)
        _write(folder / "batch-00000007.jsonl", data)
    same = reprise("compare", tmp_path / "a", tmp_path / "a")
    assert (same.exit_code, same.output.split(":")[0]) == (0, "identical")
    other = reprise("compare", tmp_path / "a", tmp_path / "b")
    assert other.exit_code == 1
    assert "different (1): count.0 batch 7" in other.output
    assert json.loads(reprise("compare", "-o", "json", tmp_path / "a", tmp_path / "b").output)[
        "different"
    ] == [["count.0", 7]]
    assert reprise("compare", tmp_path / "a", tmp_path / "c").exit_code == 2


INSTANCE: dict[str, Any] = {
    "capacity": 5,
    "partitions": [{"id": "a", "cost": 3}, {"id": "b", "cost": 2}, {"id": "c", "cost": 4}],
    "queries": [
        {"id": "q1", "priority": 5, "partitions": ["a", "b"]},
        {"id": "q2", "priority": 3, "partitions": ["c"]},
    ],
}


def test_plan_from_a_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "i.json", json.dumps(INSTANCE))
    plan = json.loads(reprise("plan", "-i", path, "--algorithm", "ilp", "-o", "json").output)
    assert (plan["value"], plan["queries"], plan["optimal"]) == (5, ["q1"], True)
    table = reprise("plan", "-i", path).output
    assert "q1" in table and "waits: q2" in table
    assert [choice["query"] for choice in plan["chosen"]] == ["q1"]
    (left_out,) = plan["excluded"]
    assert (left_out["query"], left_out["missing"], left_out["missing_capacity"]) == ("q2", ["c"], 4)
    assert (left_out["competes_with"], left_out["enters_at"], left_out["entry_exact"]) == (["q1"], 9, True)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"capacity": -1}, "capacity"),
        ({"capacity": "5"}, "capacity"),
        ({"queries": [{"id": "q", "partitions": ["x"]}]}, "queries[0].partitions"),
        ({"partitions": [{"id": "a", "cost": float("nan")}]}, "$"),
        ({"colour": 1}, "$"),
    ],
)
def test_plan_names_the_field_that_is_wrong(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    path = _write(tmp_path / "i.json", json.dumps({**INSTANCE, **change}))
    wrong = reprise("plan", "-i", path)
    assert (wrong.exit_code, wrong.stderr.split(":")[1].strip(), wrong.stdout) == (2, field, "")


def test_plan_refuses_what_it_cannot_plan(tmp_path: Path) -> None:
    path = _write(tmp_path / "j.json", json.dumps(INSTANCE))
    assert "no planner 'luck'" in reprise("plan", "-i", path, "--algorithm", "luck").stderr
    for arguments in ([], ["-i", path, "--from-incident", tmp_path], ["-i", path, "--time-limit", "-1s"]):
        assert reprise("plan", *arguments).exit_code == 2
    assert "No such file" in reprise("plan", "-i", tmp_path / "none.json").stderr
    (tmp_path / "k.json").write_bytes(b"\xff\xfe{")
    assert "not UTF-8" in reprise("plan", "-i", tmp_path / "k.json").stderr
    many = {"capacity": 1, "partitions": [{"id": "a", "cost": 1}]}
    many["queries"] = [{"id": f"q{i}", "partitions": ["a"]} for i in range(30)]
    path = _write(tmp_path / "l.json", json.dumps(many))
    assert "at most 20 queries" in reprise("plan", "-i", path, "--algorithm", "dp").stderr


def test_checkpoints_are_listed_and_damage_is_exit_code_1(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "cp"))
    file = store.write_state(10, "count.0", "x", {})
    store.complete(Manifest.of_round(10, {"count.0": file}, {"tweets.0": 100}))
    listed = json.loads(reprise("checkpoints", "--location", tmp_path / "cp", "-o", "json").output)
    assert [(c["position"], c["files"], c["problem"]) for c in listed["checkpoints"]] == [(10, 1, "")]
    next((tmp_path / "cp").rglob("*.state")).write_bytes(b"rubbish")
    damaged = reprise("checkpoints", "--location", tmp_path / "cp")
    assert damaged.exit_code == 1
    assert "damaged" in damaged.output
    assert reprise("checkpoints", "--location", tmp_path / "cp", "--no-verify").exit_code == 0
    assert reprise("checkpoints").exit_code == 2


RECORDS = {
    "stream.json": b'{"began": 1.0, "epoch": 1}',
    "ranges/0000000001.json": b'{"last": 3, "ended_at": null, "epoch": 1, "ranges": {}}',
    "revisions/00000001.json": b'{"revision": "a", "drained": null}',
    "graphs/00000001.json": b'{"sources": {}, "operators": {}, "begins": {}}',
    "skipped/00000001.json": b"[]",
    "clock/00000001.json": b'{"started": 1.0, "anchors": [[1, 1.0, 0.5]]}',
}


@pytest.mark.parametrize("data", [b"", b'{"epoch": 1', b"\xff\xfe", b'{"a": 1}', b"[7]"])
@pytest.mark.parametrize("record", RECORDS)
def test_a_damaged_record_beside_checkpoints_is_named(tmp_path: Path, record: str, data: bytes) -> None:
    file = tmp_path / "cp" / record
    file.parent.mkdir(parents=True)
    for name in ("stream.json", record):
        (tmp_path / "cp" / name).write_bytes(RECORDS[name])
    whole = reprise("checkpoints", "--location", tmp_path / "cp")
    assert whole.exit_code == 0, whole.output
    file.write_bytes(data)
    damaged = reprise("checkpoints", "--location", tmp_path / "cp")
    assert damaged.exit_code == 1
    assert f"{record} in " in damaged.output
    assert "damaged" in damaged.output
    document = json.loads(reprise("checkpoints", "--location", tmp_path / "cp", "-o", "json").output)
    assert [text for text in document["damagedRecords"] if record in text]


def test_checkpoints_are_read_from_a_standby(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "second"))
    store.complete(
        Manifest.of_round(10, {"count.0": store.write_state(10, "count.0", "x", {})}, {"tweets.0": 100})
    )
    arguments = (
        "checkpoints",
        "--location",
        tmp_path / "first",
        "--standby",
        tmp_path / "second",
        "-o",
        "json",
    )
    listed = json.loads(reprise(*arguments).output)
    assert [(c["position"], c["files"], c["problem"]) for c in listed["checkpoints"]] == [(10, 1, "")]


def test_history_needs_a_finished_run(tmp_path: Path) -> None:
    result = reprise("history", "--out", tmp_path)
    assert (result.exit_code, "no finished run" in result.stderr) == (2, True)
    _write(tmp_path / "incident.json", "{}")
    assert reprise("history", "--out", tmp_path).exit_code == 2


@pytest.mark.parametrize("name", [None, "/data/out/run.json"])
def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str], name: str | None) -> None:
    def fill() -> None:
        raise OSError(28, "No space left on device", name)

    with pytest.raises(SystemExit) as ended:
        guarded(fill)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {name or 'the disk'}: No space left on device\n"
