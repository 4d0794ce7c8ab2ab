"""`reprise validate`: notes on names, what a trial gives, and the first failure with what came before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import validate_command
from reprise.controller.cli.validate_command import attempt, command, renamed
from reprise.spark_jobs.errors import NotYetError, SourceError, StepError, StoreError
from reprise.spark_jobs.topology import expand, load_text
from reprise.spark_jobs.topology.guarantees import described, guarantees
from tests.support import oncall

NEW = oncall.TEXT.replace("reprise.spark_jobs.", "reprise.")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.yaml"
    path.write_text(NEW)
    return path


def called(file: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["-f", str(file), *words])


def test_a_class_of_the_library_that_has_a_better_name_is_told_once(tmp_path: Path) -> None:
    twice = oncall.TEXT.replace(
        "  nodes:",
        """    - name: again
      class: reprise.spark_jobs.operators:KeyedCount
      with: {keys: [tweet]}
      inputs: [{from: tweets}]
  nodes:""",
    )
    assert renamed(load_text(twice)) == [
        "reprise.spark_jobs.sources:HashtagSource is called reprise.sources:HashtagSource now",
        "reprise.spark_jobs.operators:KeyedCount is called reprise.operators:KeyedCount now",
    ]
    assert renamed(load_text(NEW)) == []
    file = tmp_path / "old.yaml"
    file.write_text(twice)
    assert called(file).stderr.count("note: ") == 2


def test_what_is_valid_is_counted(file: Path) -> None:
    result = called(file)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == f"{file}: valid; 5 partitions, 4 queries"
    resource = load_text(NEW)
    assert result.output.splitlines()[1:] == list(described(resource, guarantees(resource, {"count": True})))


def test_a_store_that_is_away_is_a_warning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(validate_command, "savepoint_of", away)
    result = called(file)
    assert result.exit_code == 0
    assert "warning: spec.checkpoint.startFrom: not looked at: no answer" in result.stderr


def trial(monkeypatch: pytest.MonkeyPatch, *outputs: object) -> None:
    """What batches give: tables by partition, or an error."""

    def run_local(*_: object) -> Iterator[object]:
        for one in outputs:
            if isinstance(one, Exception):
                raise one
            yield one

    monkeypatch.setattr(validate_command, "run_local", run_local)
    attempt(oncall.resource(), expand(oncall.resource()), len(outputs))


OUTPUTS = {
    **dict.fromkeys(expand(oncall.resource()).outputs),
    "count.1": pa.table({"tweet": [1, 2], "count": [3, 4]}),
}


def test_a_trial_counts_the_rows_of_each_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial(monkeypatch, OUTPUTS, OUTPUTS)
    assert capsys.readouterr().out.splitlines() == [
        "tried 2 batches:", "  count.0        0 rows", "  count.1        4 rows: tweet, count", "  count.2        0 rows",
        "  count.3        0 rows",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "error",
    [
        StepError("count", "count.1", 2, ValueError("bad row")),
        SourceError("no such file"),
        NotYetError("the log has no rows yet"),
    ],
)
def test_the_first_failure_comes_after_what_there_was_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    with pytest.raises(SystemExit) as ended:
        trial(monkeypatch, OUTPUTS, error, OUTPUTS)
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "tried 1 batch:"
    assert "  count.1        2 rows: tweet, count" in shown.out.splitlines()
    assert str(error) in shown.err


def test_a_trial_on_the_real_operators(file: Path) -> None:
    result = called(file, "--try", "3")
    assert result.exit_code == 0, result.output
    assert "tried 3 batches:" in result.output


def of_files(folder: Path, content: str, **more: object) -> Path:
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    given = {"paths": ["rows.csv"], "rows": 10, **more}
    source = {"name": "rows", "class": "reprise.sources:FileSource", "with": given}
    sink = {"name": "out", "class": "reprise.operators:Sink", "inputs": [{"from": "rows"}], "output": {}}
    spec = {"sources": [source], "operators": [sink]}
    resource = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": "t"}}
    path = folder / "topology.yaml"
    path.write_text(json.dumps({**resource, "spec": spec}), encoding="utf-8")
    return path


def test_types_that_nobody_declared_are_printed(tmp_path: Path) -> None:
    said = CliRunner().invoke(
        command, ["-f", str(of_files(tmp_path, "plz,price,at\n01067,10.5,2025-03-01\n"))]
    )
    assert said.exit_code == 0
    assert "source rows: plz string, price double, at date32 (as found in its files;" in said.output
    declared = of_files(
        tmp_path, "plz,price\n01067,10.5\n", columns={"plz": "string", "price": "decimal(8, 2)"}
    )
    assert "source rows" not in CliRunner().invoke(command, ["-f", str(declared)]).output


def test_rows_that_cannot_be_read_are_an_error_before_the_first_batch(tmp_path: Path) -> None:
    wrong = of_files(tmp_path, "v,at\n1,soon\n", time="at")
    said = CliRunner().invoke(command, ["-f", str(wrong)])
    assert said.exit_code == 1
    assert "spec.sources[rows]: column 'at': 'soon' is no time of ISO 8601" in said.output
    assert "valid" not in said.output


def test_a_value_that_is_not_of_its_declared_type_is_an_error_before_the_first_batch(tmp_path: Path) -> None:
    said = CliRunner().invoke(command, ["-f", str(of_files(tmp_path, "v\nsoon\n", columns={"v": "int64"}))])
    assert said.exit_code == 1
    assert "spec.sources[rows]: cannot read" in said.output and "'soon' is none" in said.output


FAR = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: far}
spec:
  sources:
    - name: rows
      class: reprise.sources:FileSource
      with: {paths: [rows.csv], rows: 2, time: time, disorder: 10s}
  operators:
    - name: win
      class: reprise.operators:TumblingWindow
      with: {size: 1m, aggregate: {rows: count()}}
      inputs: [{from: rows}]
      output: {}
"""


def test_rows_that_are_late_behind_one_of_the_far_future_are_said(tmp_path: Path) -> None:
    days = [
        "2025-01-01 10:00:00",
        "2025-01-01 10:01:00",
        "9999-12-31 00:00:00",
        *(f"2025-01-01 10:0{n}:00" for n in range(2, 7)),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["time", *days]) + "\n")
    (tmp_path / "t.yaml").write_text(FAR)
    found = CliRunner().invoke(command, ["-f", str(tmp_path / "t.yaml"), "--try", "10"])
    assert found.exit_code == 0
    assert "warning: win.0 has left out 4 late rows" in found.stderr


def test_what_a_file_cannot_hold_is_said_before_it_runs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": [1], "b": pa.array([b"x"])}), tmp_path / "rows.parquet")
    sink = FAR.replace("TumblingWindow", "Sink").replace(
        "      with: {size: 1m, aggregate: {rows: count()}}\n", ""
    )
    (tmp_path / "t.yaml").write_text(sink.replace("rows.csv", "rows.parquet"))
    found = CliRunner().invoke(command, ["-f", str(tmp_path / "t.yaml"), "--try", "2"])
    assert found.exit_code == 1
    assert "win.0: " in found.stderr
    assert "b: binary" in found.stderr
