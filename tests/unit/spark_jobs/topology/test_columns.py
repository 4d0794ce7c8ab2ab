"""Columns followed through the graph: what cannot be there is refused, what is not known is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import yaml

from reprise.spark_jobs.contract import Columns, Inbox, Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import load_topology
from reprise.spark_jobs.topology.columns import follow

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))
HERE = "tests.unit.spark_jobs.topology.test_columns"


class Silent(Operator):
    """Says nothing of its columns."""

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return state, inbox.table()


class Doubles(Silent):
    """Declares what it gives."""

    def output_columns(self, inputs: Any) -> Columns:
        return ("time", "twice")


class Broken(Silent):
    """A declaration that raises."""

    def output_columns(self, inputs: Any) -> Columns:
        raise ValueError("no idea")


def topology(tmp_path: Path, *operators: dict[str, Any], source: dict[str, Any] | None = None) -> Path:
    tweets = {
        "name": "tweets",
        "class": "reprise.spark_jobs.sources:HashtagSource",
        "with": {"rate": 100, "batches": 4, "tags": 9},
    }
    document = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "t"},
        "spec": {"sources": [source or tweets], "operators": list(operators)},
    }
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False, default_style='"'))
    return path


def op(name: str, kind: str, inputs: list[Any], **parameters: Any) -> dict[str, Any]:
    inputs = [{"from": i} if isinstance(i, str) else i for i in inputs]
    path = kind if ":" in kind else f"reprise.spark_jobs.operators:{kind}"
    return {"name": name, "class": path, "with": parameters, "inputs": inputs, "output": {}}


FLAT = op("flat", "FlatMap", ["tweets"], explode=["hashtags"], select=["time", "hashtags AS tag"])
COUNT = op("count", "KeyedCount", [{"from": "flat", "by": ["tag"]}], keys=["tag"])


@pytest.mark.parametrize(
    ("operators", "field", "reason"),
    [
        (
            [FLAT, op("count", "KeyedCount", [{"from": "flat", "by": ["tagg"]}], keys=["tag"])],
            "spec.operators[count].inputs[0].by",
            "'flat' gives: there is no column 'tagg'; the columns are time, tag; did you mean 'tag'?",
        ),
        (
            [FLAT, op("count", "KeyedCount", ["flat"], keys=["tagg"])],
            "spec.operators[count].with.keys",
            "there is no column 'tagg'; the columns are time, tag; did you mean 'tag'?",
        ),
        ([op("x", "FlatMap", ["tweets"], explode=["hashtag"])], "spec.operators[x].with.explode", "'hashtag'"),
        ([op("x", "Filter", ["tweets"], where="tweets > 3")], "spec.operators[x].with.where", "'tweets'"),
        ([op("x", "Map", ["tweets"], select=["tim AS t"])], "spec.operators[x].with.select", "did you mean 'time'?"),
        (
            [FLAT, COUNT, op("top", "TopK", ["count"], k=3, by="cuont", keys=["tag"])],
            "spec.operators[top].with.by",
            "the columns are tag, count; did you mean 'count'?",
        ),
        (
            [op("w", "TumblingWindow", ["tweets"], size="1s", aggregate={"n": "max(twet)"})],
            "spec.operators[w].with.aggregate.n",
            "did you mean 'tweet'?",
        ),
        ([op("w", "TumblingWindow", ["tweets"], size="1s", time="at", aggregate={"n": "count()"})],
         "spec.operators[w].with.time", "there is no column 'at'"),
        (
            [FLAT, op("j", "StreamTableJoin", ["tweets", "flat"], stream="tweets", table="flt", keys=["time"])],
            "spec.operators[j].with.table",
            "'flt' is not an input of this operator; did you mean 'flat'?",
        ),
        (
            [FLAT, op("j", "WindowedJoin", ["tweets", "flat"], left="tweets", right="flat", keys=["tag"], within="1s")],
            "spec.operators[j].with.keys",
            "there is no column 'tag'; the columns are time, tweet, hashtags",
        ),
        ([FLAT, op("u", "Union", ["tweets", "flat"])], "spec.operators[u].with.columns", "the columns are time, tag"),
        ([op("l", "Latest", ["tweets"], keys=["user"])], "spec.operators[l].with.keys", "'user'"),
        ([op("m", "Map", ["tweets"], select=["*", "tweet + 1 AS tweet"])], "spec.operators[m].with", "are called 'tweet'"),
        ([FLAT, op("m", "Sink", ["flat"]), op("j", "StreamTableJoin", ["m", "flat"], stream="m", table="flat",
            keys=["time"], suffix="")],
         "spec.operators[j].with", "are called 'tag': rename one in a Map"),
        ([op("m", "Map", ["tweets"], select=[])], "spec.operators[m].with.select", "expected a list of SQL expressions"),
        (
            [op("d", f"{HERE}:Doubles", ["tweets"]), op("c", "KeyedCount", ["d"], keys=["tag"])],
            "spec.operators[c].with.keys",
            "the columns are time, twice",
        ),
        (
            [op("d", f"{HERE}:Broken", ["tweets"])],
            "spec.operators[d].class",
            "its output_columns raised ValueError: no idea",
        ),
    ],
)  # fmt: skip
def test_a_column_that_cannot_be_there_is_one_error_with_its_field(
    tmp_path: Path, operators: list[dict[str, Any]], field: str, reason: str
) -> None:
    with pytest.raises(SpecError) as raised:
        load_topology(topology(tmp_path, *operators))
    assert raised.value.field == field
    assert reason in raised.value.reason
    assert "(t.yaml, line " in raised.value.reason


def test_what_is_not_known_is_not_refused(tmp_path: Path) -> None:
    path = topology(
        tmp_path,
        op("own", f"{HERE}:Silent", ["tweets"]),
        op("count", "KeyedCount", [{"from": "own", "by": ["anything"]}], keys=["anything"]),
        op("made", "Map", ["tweets"], function=f"{HERE}:other_columns", where="seen > 1"),
        op("all", "Map", ["own"], select=["*", "x AS y"]),
    )
    found = follow(load_topology(path))
    assert found == {
        "tweets": ("time", "tweet", "hashtags"),
        "own": None, "count": ("anything", "count"), "made": None, "all": None,
    }  # fmt: skip


def other_columns(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(seen=pl.lit(2))


@pytest.mark.wide
@pytest.mark.parametrize("path", [p for p in EXAMPLES if "kafka" not in p.name], ids=lambda p: p.stem)
def test_what_the_library_declares_is_what_it_gives(path: Path) -> None:
    resource = load_topology(path, {"sources[flights].with.step": "480h", "sources[weather].with.step": "480h"}
                             if path.stem == "flights" else None)  # fmt: skip
    declared, seen = follow(resource), set()
    for outputs in run_local(resource, batches=6):
        for partition, table in outputs.items():
            if table is not None:
                operator = partition.rpartition(".")[0]
                assert declared[operator] == tuple(table.column_names), operator
                seen.add(operator)
    assert len(seen) >= min(3, len(resource.stages))


def rows_of(*paths: str, kind: str = "FileSource", **more: Any) -> dict[str, Any]:
    where = {"paths": list(paths), "rows": 2} if kind == "FileSource" else {"data": paths[0], "step": "1s"}
    return {"name": "clicks", "class": f"reprise.spark_jobs.sources:{kind}", "with": {**where, **more}}


def clicks(folder: Path) -> None:
    table = pa.table({"time": [1, 2, 3], "page": ["a", "b", "a"]})
    pl.DataFrame(table.to_pydict()).write_parquet(folder / "clicks.parquet")


@pytest.mark.parametrize("kind", ["FileSource", "EventTimeReplay"])
def test_paths_are_relative_to_the_topology_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    clicks(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    count = op("count", "KeyedCount", [{"from": "clicks", "by": ["page"]}], keys=["page"])
    resource = load_topology(topology(tmp_path, count, source=rows_of("clicks.parquet", kind=kind)))
    rows = [t.num_rows for outputs in run_local(resource) if (t := outputs["clicks.0"]) is not None]
    assert sum(rows) == 3
    assert str(tmp_path / "clicks.parquet") in resource.document


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("absent.parquet", None, "absent.parquet: No such file or directory"),
        ("some.parquet", b"page,time\n", "some.parquet: it is damaged, or of another format"),
        ("none-*.parquet", None, "no file matches "),
        ("some.xlsx", b"x", "some.xlsx: its suffix is none of .parquet, .csv"),
        ("some.jsonl", b"not json", "some.jsonl: line 1 is not JSON"),
        ("folder.csv", "folder", "folder.csv is a folder: name its files"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_before_the_start(
    tmp_path: Path, path: str, content: bytes | str | None, reason: str
) -> None:
    if isinstance(content, bytes):
        (tmp_path / path).write_bytes(content)
    elif content == "folder":
        (tmp_path / path).mkdir()
    file = topology(tmp_path, op("count", "KeyedCount", ["clicks"], keys=["page"]), source=rows_of(path))
    with pytest.raises(SpecError) as raised:
        load_topology(file)
    assert raised.value.field == "spec.sources[clicks].with.paths[0]"
    assert reason in raised.value.reason
    assert load_topology(file, data=False).sources[0].name == "clicks"  # where the files are not


def test_a_file_without_permission_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is made up: a file's mode stops nobody where tests run as root."""
    clicks(tmp_path)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "clicks.parquet"))

    monkeypatch.setattr("pyarrow.parquet.read_schema", refused)
    file = topology(
        tmp_path, op("c", "KeyedCount", ["clicks"], keys=["page"]), source=rows_of("clicks.parquet")
    )
    with pytest.raises(SpecError, match="Permission denied"):
        load_topology(file)


def test_an_event_time_column_that_the_file_lacks_is_named(tmp_path: Path) -> None:
    clicks(tmp_path)
    source = rows_of("clicks.parquet", time="tiem")
    with pytest.raises(SpecError, match="did you mean 'time'") as raised:
        load_topology(topology(tmp_path, op("c", "KeyedCount", ["clicks"], keys=["page"]), source=source))
    assert raised.value.field == "spec.sources[clicks].with.time"


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"operators[c].resources": {"cpu": "900m"}}, "spec.operators[c].resources.cpu", "of 1000m (nodes.cpu) is 800m"),
        ({"nodes.cpu": "10m", "sources[tweets].resources": {"cpu": "9m"}}, "spec.sources[tweets].resources.cpu", "needs 9m"),
    ],
)  # fmt: skip
def test_a_partition_larger_than_any_node_is_refused(
    tmp_path: Path, changes: dict[str, Any], field: str, reason: str
) -> None:
    file = topology(tmp_path, op("c", "KeyedCount", ["tweets"], keys=["tweet"]))
    with pytest.raises(SpecError) as raised:
        load_topology(file, changes)
    assert raised.value.field == field
    assert reason in raised.value.reason
    load_topology(file, {**changes, "nodes.cpu": "2"})
