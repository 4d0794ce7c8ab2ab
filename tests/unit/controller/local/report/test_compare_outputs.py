"""Two runs agree when every output file is the same; each way to differ is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reprise.controller.cli.compare_command import command, lines
from reprise.controller.errors import ReportError
from reprise.controller.local.report.compare import compare
from reprise.controller.local.report.expected import verify
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.topology import load_text, to_json


def _run(folder: Path, files: dict[str, bytes]) -> Path:
    (folder / "sink").mkdir(parents=True)
    for name, data in files.items():
        path = folder / "sink" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


BASE = {
    "count/0/batch-00000001.jsonl": b"a\n",
    "count/0/batch-00000002.jsonl": b"",
    "top/1/batch-00000001.parquet": b"P",
}


def test_the_same_files_are_identical_and_unfinished_ones_are_no_output(tmp_path: Path) -> None:
    a = _run(tmp_path / "a", BASE)
    b = _run(tmp_path / "b", {**BASE, "count/0/.batch-00000003.jsonl.7.part": b"half"})
    found = compare(a, b)
    assert found.identical
    assert found.equal == 3


@pytest.mark.parametrize(
    ("change", "field", "piece"),
    [
        ({"count/0/batch-00000002.jsonl": None}, "missing", ("count.0", 2)),
        ({"count/1/batch-00000001.jsonl": b""}, "extra", ("count.1", 1)),
        ({"count/0/batch-00000001.jsonl": b"b\n"}, "different", ("count.0", 1)),
        ({"count/0/batch-00000002.jsonl": b"\n"}, "different", ("count.0", 2)),
        ({"count/0/batch-00000001.parquet": b"a\n"}, "twice", ("count.0", 1)),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path, change: dict[str, bytes | None], field: str, piece: tuple[str, int]
) -> None:
    a = _run(tmp_path / "a", BASE)
    b = _run(tmp_path / "b", {n: d for n, d in {**BASE, **change}.items() if d is not None})
    found = compare(a, b)
    assert not found.identical
    assert getattr(found, field) == (piece,)


def test_the_same_bytes_in_another_format_differ(tmp_path: Path) -> None:
    a = _run(tmp_path / "a", {"o/0/batch-00000001.jsonl": b"x"})
    b = _run(tmp_path / "b", {"o/0/batch-00000001.parquet": b"x"})
    assert compare(a, b).different == (("o.0", 1),)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="nowhere"):
        compare(_run(tmp_path / "a", BASE), tmp_path / "nowhere")


def test_two_folders_without_any_output_do_not_agree_on_everything(tmp_path: Path) -> None:
    a, b = _run(tmp_path / "a", {}), _run(tmp_path / "b", {"count/0/.batch-00000001.jsonl.7.part": b"half"})
    with pytest.raises(ReportError, match="no output in either"):
        compare(a, b)
    assert compare(a, _run(tmp_path / "c", BASE)).extra == (("count.0", 1), ("count.0", 2), ("top.1", 1))


def test_pieces_are_compared_whatever_the_order_and_size_of_their_bytes(tmp_path: Path) -> None:
    a = _run(tmp_path / "a", {"o/0/batch-00000001.jsonl": b"ab", "o/10/batch-00000002.jsonl": b"x"})
    b = _run(tmp_path / "b", {"o/0/batch-00000001.jsonl": b"ba", "o/10/batch-00000002.jsonl": b"x"})
    found = compare(a, b)
    assert (found.equal, found.different) == (1, (("o.0", 1),))


def test_batches_that_are_marked_may_differ_and_are_named(tmp_path: Path) -> None:
    a = _run(tmp_path / "a", BASE)
    marked = {
        "count/0/batch-00000001.jsonl": b"",
        "count/0/batch-00000001.gap.mark": b"",
        "top/1/batch-00000001.gap.mark": b"",
    }
    b = _run(tmp_path / "b", {**BASE, **marked})
    found = compare(a, b)
    assert (found.identical, found.unexplained, found.equal) == (False, False, 2)
    assert found.marked == (("count.0", 1), ("top.1", 1))
    other = compare(a, _run(tmp_path / "c", {**BASE, **marked, "count/0/batch-00000002.jsonl": b"x"}))
    assert other.unexplained
    assert other.different == (("count.0", 2),)


@pytest.mark.parametrize(("more", "code"), [({}, 5), ({"count/0/batch-00000002.jsonl": b"x"}, 1)])
def test_the_command_tells_a_gap_from_a_difference(tmp_path: Path, more: dict[str, bytes], code: int) -> None:
    a = _run(tmp_path / "a", BASE)
    b = _run(tmp_path / "b", {**BASE, "count/0/batch-00000001.gap.mark": b"", **more})
    ran = CliRunner().invoke(command, [str(a), str(b)])
    assert ran.exit_code == code
    assert "marked (1): count.0 batch 1" in ran.output


TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.scripted:Numbers"}]
  operators:
    - {name: all, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: in}], output: {}}
    - {name: late, class: "reprise.spark_jobs.operators:Sink", parallelism: 2, inputs: [{from: in, by: ["n"]}], output: {}}
"""


def test_queries_without_any_output_are_named(tmp_path: Path) -> None:
    """Two runs that were cut off: of queries that had shown nothing yet they do not say that they agree."""
    resource = load_text(TOPOLOGY)
    files = {"all/0/batch-00000001.jsonl": b"x", "late/1/batch-00000001.jsonl": b"y"}
    a, b = _run(tmp_path / "a", files), _run(tmp_path / "b", files)
    assert compare(a, b).silent == ()  # nothing says what there should be
    (b / "topology.json").write_text(to_json(resource))
    found = compare(a, b)
    assert found.identical
    assert found.silent == ("late.0",)
    ran = CliRunner().invoke(command, [str(a), str(b)])
    assert ran.exit_code == 0
    assert "nothing is known of late.0: no output" in ran.output
    (b / "topology.json").write_text("{")
    assert compare(a, b).silent == ()


def test_verifying_a_run_that_did_not_end_names_queries_without_output(tmp_path: Path) -> None:
    resource = load_text(TOPOLOGY)
    rows = next(iter(run_local(resource, 1)))
    table = rows["all.0"]
    data = b"" if table is None or not table.num_rows else encoded("jsonl", table)
    out = _run(tmp_path / "run", {"all/0/batch-00000001.jsonl": data})
    found = verify(resource, out, ended=False)
    assert (found.identical, found.equal, found.silent) == (True, 1, ("late.0", "late.1"))
    assert lines(found)[-1] == "nothing is known of late.0, late.1: no output"


def test_batches_of_rows_in_the_order_of_arrival_are_not_verified(tmp_path: Path) -> None:
    resource = load_text(TOPOLOGY, changes={"batch.order": "arrival"})
    out = _run(tmp_path / "run", {"all/0/batch-00000001.jsonl": b""})
    with pytest.raises(ReportError, match=r"order of its arrival \(batch\.order\)"):
        verify(resource, out, ended=False)
