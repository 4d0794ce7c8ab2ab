"""Checkpoints, the ledger and sinks: whole or not at all, and damage is found (invariant S1)."""

import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import CheckpointError, DamagedError, SinkError
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.ledger import AHEAD, Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.state.state_file import decode_state, encode_state
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import expand, load_text

TABLES = {
    "counts": pa.table({"tag": ["a", "b"], "n": [1, 2]}),
    "none": pa.table({"x": pa.array([], pa.float64())}),
}

SMALL = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: small}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource", parallelism: 2,
       with: {rate: 100, interval: 100ms, batches: 40, tags: 20}}
  operators:
    - {name: out, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: tweets}], output: {}}
"""


def stored(store: CheckpointStore, position: int) -> Manifest:
    file = store.write_state(position, "count.0", "host-1", TABLES)
    manifest = Manifest.of_round(position, {"count.0": file}, {"tweets.0": position * 10})
    store.complete(manifest)
    return manifest


def test_state_file_round_trip() -> None:
    back = decode_state(encode_state(TABLES))
    assert {n: t.to_pydict() for n, t in back.items()} == {n: t.to_pydict() for n, t in TABLES.items()}
    assert {n: t.schema for n, t in back.items()} == {n: t.schema for n, t in TABLES.items()}


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_a_checkpoint_exists_only_with_its_manifest(tmp_path: Path, url: str) -> None:
    store = CheckpointStore(url.format(tmp_path))
    store.write_state(5, "count.0", "host-1", TABLES)
    assert store.positions() == []
    manifest = stored(store, 5)
    assert store.positions() == [5]
    assert store.manifest(5) == manifest == store.verify(5)


def test_memory_location_works_too() -> None:
    store = CheckpointStore("memory://checkpoints-of-a-test")
    manifest = stored(store, 1)
    assert store.verify(1) == manifest


def test_damage_is_found(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    file = stored(store, 5).files["count.0"]
    path = tmp_path / file.path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"count\.0.*damaged"):
        store.read_state(file)
    with pytest.raises(CheckpointError, match="damaged"):
        store.verify(5)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot read"):
        store.read_state(file)
    (tmp_path / "cp-00000005" / "COMPLETE.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"COMPLETE\.json.*damaged"):
        store.manifest(5)


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    for position in (5, 10, 15, 20):
        stored(store, position)
    store.write_state(12, "count.0", "host-1", TABLES)  # never completed
    store.prune(2)
    assert store.positions() == [15, 20]
    assert sorted(p.name for p in tmp_path.glob("cp-*")) == ["cp-00000015", "cp-00000020"]


def test_a_sink_batch_is_written_once(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, Place("out", 0, 1), "jsonl")
    sink.write(1, TABLES["counts"])
    sink.write(1, TABLES["counts"])
    assert sink.path(1).read_text() == '{"tag":"a","n":1}\n{"tag":"b","n":2}\n'
    with pytest.raises(SinkError, match="batch 1 is not identical"):
        sink.write(1, TABLES["counts"].slice(1))
    assert sink.path(1).read_text().count("\n") == 2
    sink.write(2, None)
    assert sink.path(2).read_bytes() == b""
    assert [p.name for p in sink.folder.iterdir() if p.name.startswith(".")] == []


def test_parquet_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    for root in ("a", "b"):
        FileSink(tmp_path / root, Place("out", 0, 1), "parquet").write(1, TABLES["counts"])
    first, second = (FileSink(tmp_path / r, Place("out", 0, 1), "parquet").path(1).read_bytes() for r in "ab")
    assert first == second
    assert first[:4] == b"PAR1"


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_sink_that_cannot_write_says_where(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where a folder should be")
    with pytest.raises(SinkError, match="cannot write"):
        FileSink(tmp_path, Place("out", 0, 1), "jsonl").write(1, None)


def test_ranges_are_written_before_they_are_given(tmp_path: Path) -> None:
    resource = load_text(SMALL)
    topology = expand(resource)
    ledger = Ledger(str(tmp_path), resource, topology)
    assert ledger.reach(3) == 3
    assert len(list((tmp_path / "ranges").glob("*.json"))) == 1
    again = Ledger(str(tmp_path), resource, topology)
    assert again.written == AHEAD
    assert again.spans("tweets.1", 0, 16) == ledger.spans("tweets.1", 0, 16)
    assert again.reach(1000) == 40
    assert again.ended_at == 40
    ends = [again.ranges["tweets.0"][b] for b in range(1, 41)]
    assert all(a[1] == b[0] for a, b in pairwise(ends))
    assert Ledger(str(tmp_path), resource, topology).ended_at == 40
    assert again.offsets(40)["tweets.0"] == ends[-1][1]


def test_a_damaged_ledger_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ranges").mkdir()
    (tmp_path / "ranges" / "0000000001.json").write_text('{"last": 3}')
    resource = load_text(SMALL)
    with pytest.raises(CheckpointError, match="ledger"):
        Ledger(str(tmp_path), resource, expand(resource))


def test_two_that_name_the_stream_have_the_name_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is frozen before it writes the name, beside its successor."""
    resource, real = load_text(SMALL), Files.create
    found: list[Ledger] = []

    def freezes(self: Files, relative: str, data: bytes) -> bool:
        if not found:
            monkeypatch.setattr(Files, "create", real)
            found.append(Ledger(str(tmp_path), resource, expand(resource)))
        return real(self, relative, data)

    monkeypatch.setattr(Files, "create", freezes)
    frozen = Ledger(str(tmp_path), resource, expand(resource))
    assert frozen.stream == found[0].stream


def test_the_clock_goes_on_after_a_restart(tmp_path: Path) -> None:
    release = Release(str(tmp_path), 0.5, epoch=1)
    assert release.due(1000.0, 0) == 0
    release.start(1000.0)
    release.start(2000.0)
    again = Release(str(tmp_path), 0.5, epoch=1)
    assert (again.due(1000.0, 0), again.due(1000.6, 0), again.at(3)) == (1, 2, 1001.0)


def test_a_mirror_is_read_where_the_location_cannot_be(tmp_path: Path) -> None:
    """Missing, damaged and emptied: each time the mirror answers, and without one the error is the location's own."""
    first, mirror = tmp_path / "first", tmp_path / "mirror"
    store = CheckpointStore(str(first), [str(tmp_path / "nothing"), str(mirror)])
    file = store.write_state(7, "count.0", "a", TABLES)
    store.complete(Manifest.of_round(7, {"count.0": file}, {"s.0": 70}, {"s.0": {"t/0": 30, "t/1": 40}}))
    shutil.copytree(first, mirror)
    (first / file.path).write_bytes(b"damaged")
    assert store.read_state(file).keys() == TABLES.keys()
    assert store.verify(7).logs == {"s.0": {"t/0": 30, "t/1": 40}}
    with pytest.raises(CheckpointError, match="first is damaged"):
        CheckpointStore(str(first)).read_state(file)
    shutil.rmtree(first)
    assert store.positions() == [7]
    assert store.manifest(7).files == {"count.0": file}
    assert store.read_state(file).keys() == TABLES.keys()
    shutil.rmtree(mirror)
    with pytest.raises(CheckpointError, match="first"):
        store.manifest(7)


def test_blocks_of_a_live_source_go_with_the_checkpoints_that_need_them(tmp_path: Path) -> None:
    resource = load_text(SMALL)
    topology = expand(resource)
    ledger = Ledger(str(tmp_path), resource, topology)
    ledger.live = True
    for batch in range(1, 11):
        assert ledger.reach(batch) == batch
    ledger.stored(9, 6)
    again = Ledger(str(tmp_path), resource, topology)
    assert (ledger.trimmed, again.trimmed) == (5, 5)
    assert again.stream == ledger.stream
    assert again.offsets(9) == ledger.offsets(9)
    assert again.spans("tweets.0", 6, 10) == ledger.spans("tweets.0", 6, 10)
    assert again.reach(12) == 12


def test_a_block_that_is_missing_in_the_middle_is_an_error(tmp_path: Path) -> None:
    resource = load_text(SMALL)
    topology = expand(resource)
    ledger = Ledger(str(tmp_path), resource, topology)
    ledger.live = True
    for batch in range(1, 6):
        ledger.reach(batch)
    (tmp_path / "ranges" / "0000000003.json").unlink()
    with pytest.raises(DamagedError, match="there is no block for batch 3, and one for batch 4"):
        Ledger(str(tmp_path), resource, topology)


def test_names_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Zeros before a number are enough for eight digits of a checkpoint and ten of a block; then text sorts otherwise."""
    store = CheckpointStore(str(tmp_path))
    for position in (99_999_999, 100_000_000, 100_000_010):
        stored(store, position)
    assert store.positions() == [99_999_999, 100_000_000, 100_000_010]
    assert store.prune(2) == 100_000_000
    assert store.positions() == [100_000_000, 100_000_010]
    resource = load_text(SMALL)
    (tmp_path / "ranges").mkdir()
    ranges: dict[str, dict[str, list[int]]] = {p: {} for p in ("tweets.0", "tweets.1")}
    for first, last in ((9_999_999_999, 9_999_999_999), (10_000_000_000, 10_000_000_005)):
        record = {"last": last, "ended_at": None, "ranges": ranges}
        (tmp_path / "ranges" / f"{first:010d}.json").write_text(json.dumps(record))
    assert Ledger(str(tmp_path), resource, expand(resource)).written == 10_000_000_005
