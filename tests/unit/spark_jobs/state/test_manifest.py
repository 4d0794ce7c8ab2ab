"""Manifests: what is written is read as it was, and what a newer version has written is not called damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.recovery_line import Edge, Heard, World, line
from reprise.spark_jobs.errors import CheckpointError, DamagedError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import Kind, Snapshot, StateFile

FILE = StateFile("cp-00000400/count.0.host-3.2.1.7.state", 2048, "9f2c")


def test_a_line_says_where_its_numbers_begin_only_where_messages_are_counted() -> None:
    counted = Snapshot("count.0", 400, FILE, Kind.ARRIVAL, 440, 441, 9, inputs={"map.0": Heard(430, 431)})
    line = Manifest(400, {"count.0": counted}, {}, numbered_from=360)
    assert Manifest.from_json(json.loads(json.dumps(line.to_json()))).numbered_from == 360
    assert "numbered_from" not in replace(line, numbered_from=0).to_json()


SNAPSHOTS = st.builds(
    Snapshot,
    partition=st.just("p"),
    position=st.integers(0, 99),
    file=st.none() | st.just(FILE),
    kind=st.sampled_from(Kind),
    sent=st.integers(0, 99),
    first=st.integers(1, 100),
    number=st.integers(0, 9),
    channels=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 99)),
    inputs=st.dictionaries(
        st.sampled_from(["a", "b"]), st.builds(Heard, st.integers(0, 99), st.integers(0, 99))
    ),
)


@given(SNAPSHOTS, st.integers(0, 99))
def test_every_line_comes_back_as_it_was(snapshot: Snapshot, position: int) -> None:
    manifest = Manifest(position, {"p": snapshot, "q": Snapshot.round("q", position, FILE)}, {"s.0": 1})
    back = Manifest.from_json(json.loads(json.dumps(manifest.to_json())))
    assert [back.snapshot(p) for p in "pqr"] == [manifest.snapshot(p) for p in "pqr"]
    assert (back.position, back.files, back.offsets) == (manifest.position, manifest.files, manifest.offsets)


@pytest.mark.parametrize("missing", ["version", "position", "files", "offsets"])
def test_what_is_no_manifest_is_refused(missing: str) -> None:
    data = Manifest.of_round(400, {"count.0": FILE}, {"tweets.0": 40000}).to_json()
    del data[missing]
    with pytest.raises(ValueError, match="no manifest"):
        Manifest.from_json(data)


def test_a_manifest_of_a_later_version_is_not_called_damaged(tmp_path: Path) -> None:
    """A driver that goes back to an older image must not take an older checkpoint in silence."""
    store = CheckpointStore(str(tmp_path))
    store.complete(Manifest.of_round(400, {}, {}))
    (path,) = tmp_path.glob("cp-00000400/*.json")
    path.write_text(json.dumps({"version": 2, "position": 400, "pieces": {}}))
    with pytest.raises(
        CheckpointError, match=r"version 2; .* up to 1: it was written by a newer version"
    ) as raised:
        store.manifest(400)
    assert not isinstance(raised.value, DamagedError)


def with_kind(kind: object) -> Manifest:
    """A manifest whose `count.0` has a snapshot of that kind."""
    return Manifest(400, {"count.0": Snapshot("count.0", 390, FILE, kind, 390, 391, 7)}, {})  # type: ignore[arg-type]


def test_a_snapshot_of_a_kind_that_is_not_known_is_not_called_damaged(tmp_path: Path) -> None:
    """It is of a version in which partitions take snapshots for reasons that this one does not know."""
    store = CheckpointStore(str(tmp_path))
    store.complete(with_kind("mirrored"))
    with pytest.raises(
        CheckpointError, match=r"count.0 is of kind 'mirrored'.* written by a newer version"
    ) as raised:
        store.manifest(400)
    assert not isinstance(raised.value, DamagedError)
    store.complete(with_kind(None))
    with pytest.raises(DamagedError):
        store.manifest(400)


def test_a_line_can_be_found_over_snapshots_of_rounds() -> None:
    known = {p: tuple(Snapshot.round(p, k) for k in (0, 10, 20)) for p in ("source", "count")}
    world = World([Edge("source", "count")], frozenset({"source"}), known, {"source": 25}, {}, 1, frozenset())
    assert line(world, {"count"}) == {"count": Snapshot.round("count", 20)}


def segment_of(batch: int, others: tuple[str, ...] = ()) -> StateFile:
    return StateFile(f"cp-{batch:08d}/average.7.host-3.1a2b3c4d5e.2.1.7.log", 4096, "9f" * 32, others, 99_000)


BATCHES = st.lists(st.integers(1, 10**9), max_size=64, unique=True).map(sorted)


@given(batches=BATCHES, last=st.integers(10**9, 10**10))
def test_earlier_segments_of_a_log_come_back_as_they_were(batches: list[int], last: int) -> None:
    file = segment_of(last + 1, tuple(segment_of(b).path for b in batches))
    assert StateFile.from_json(json.loads(json.dumps(file.to_json()))) == file


@pytest.mark.parametrize(
    "others",
    [
        ("cp-00000003/average.7.host-4.1.log",),
        ("cp-3/average.7.host-3.1a2b3c4d5e.2.1.7.log",),
        ("elsewhere",),
        ("cp-00000003/average.7.host-3.1a2b3c4d5e.2.1.7.log", "x/y"),
    ],
)
def test_files_that_are_no_row_of_segments_are_named_in_full(others: tuple[str, ...]) -> None:
    file = segment_of(900, others)
    assert file.to_json()["others"] == list(others)
    assert StateFile.from_json(file.to_json()) == file


def test_a_line_of_ten_thousand_logs_has_a_record_of_a_few_megabytes() -> None:
    """Each with 64 earlier segments: with their names it would be about 45 MB."""
    others = tuple(segment_of(b).path for b in range(1_000_000, 1_000_000 + 64 * 5, 5))
    one = Snapshot("average.7", 1_000_000, segment_of(1_000_400, others), Kind.WINDOW_LOG, 1_000_400, 1, 7)
    manifest = Manifest(1_000_000, {f"average.{n}": one for n in range(100)}, {})
    assert len(json.dumps(manifest.to_json(), indent=1)) * 100 < 8e6


def test_what_partitions_had_before_the_line_comes_back_and_its_files_are_kept(tmp_path: Path) -> None:
    newer = Snapshot("a.0", 5, segment_of(9, (segment_of(5).path,)), Kind.WINDOW_LOG, 9, 10, 3)
    older = Snapshot("a.0", 5, segment_of(7, (segment_of(3).path,)), Kind.WINDOW_LOG, 7, 8, 2)
    manifest = Manifest(5, {"a.0": newer}, {}, before={"a.0": older})
    written = json.loads(json.dumps(manifest.to_json()))
    assert Manifest.from_json(written) == manifest
    store = CheckpointStore(str(tmp_path))
    for batch in (3, 4, 5, 7, 9):
        path = tmp_path / segment_of(batch).path
        path.parent.mkdir()
        path.write_bytes(b"segment")
    store.complete(manifest)
    store.prune(1)
    assert sorted(path.parent.name for path in tmp_path.glob("*/*.log")) == [
        "cp-00000003", "cp-00000005", "cp-00000007", "cp-00000009",
    ]  # fmt: skip


WHOLE = Snapshot("a.0", 80, segment_of(80), Kind.WINDOW_LOG, 80, 81, 3)
MIXED = Snapshot("a.0", 70, segment_of(75), Kind.WINDOW_LOG, 75, 76, 2)


def test_what_partitions_had_before_may_have_slots_of_different_ages_too() -> None:
    """The newest line has none, as an incident is open; what may be taken where it is damaged has."""
    assert Manifest(60, {"a.0": WHOLE}, {}, before={"a.0": MIXED}).of_many_ages == ("a.0",)
    assert Manifest(60, {"a.0": MIXED}, {}, before={"a.0": WHOLE}).of_many_ages == ("a.0",)
    assert Manifest(60, {"a.0": WHOLE}, {}, before={"a.0": WHOLE}).of_many_ages == ()


def test_other_code_is_not_let_in_by_the_newest_checkpoint_alone(tmp_path: Path) -> None:
    """An older one is taken where the newest is damaged."""
    store = CheckpointStore(str(tmp_path))
    store.complete(Manifest(70, {"a.0": MIXED}, {}))
    store.complete(Manifest(80, {"a.0": WHOLE}, {}))
    assert store.of_many_ages() == {"a.0"}
    store.prune(1)
    assert store.positions() == [80]
    assert store.of_many_ages() == frozenset()


def test_what_partitions_had_before_is_never_beside_files_of_a_round() -> None:
    """Where it would be read by nobody."""
    manifest = Manifest(80, {"a.0": Snapshot.round("a.0", 80, FILE)}, {}, before={"a.0": WHOLE})
    written = json.loads(json.dumps(manifest.to_json()))
    assert "files" not in written
    assert Manifest.from_json(written) == manifest
