"""Manifests: what earlier versions wrote is read, what this one writes an earlier one reads or refuses, and none calls the
other's damaged without saying so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.recovery_line import Edge, World, line
from reprise.spark_jobs.errors import CheckpointError, DamagedError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import Kind, Snapshot, StateFile

FILE = StateFile("cp-00000400/count.0.host-3.2.1.7.state", 2048, "9f2c")

VERSION_1 = """{
 "position": 400,
 "files": {
  "count.0": {
   "path": "cp-00000400/count.0.host-3.2.1.7.state",
   "size": 2048,
   "sha256": "9f2c"
  }
 },
 "offsets": {
  "tweets.0": 40000
 }
}"""
"""As it was written while manifests had no version."""

VERSION_1_WITH_LOGS = (
    """{"position": 7, "files": {}, "offsets": {"s.0": 70}, "logs": {"s.0": {"t/0": 30, "t/1": 40}}}"""
)


def test_a_manifest_of_version_1_is_a_round() -> None:
    manifest = Manifest.from_json(json.loads(VERSION_1))
    assert manifest == Manifest.of_round(400, {"count.0": FILE}, {"tweets.0": 40000})
    assert manifest.snapshot("count.0") == Snapshot.round("count.0", 400, FILE)
    assert manifest.snapshot("map.0") == Snapshot.round("map.0", 400), "it has no state"
    assert manifest.files == {"count.0": FILE}


def test_a_manifest_of_version_1_keeps_its_logs() -> None:
    manifest = Manifest.from_json(json.loads(VERSION_1_WITH_LOGS))
    assert manifest == Manifest.of_round(7, {}, {"s.0": 70}, {"s.0": {"t/0": 30, "t/1": 40}})


@pytest.mark.parametrize("text", [VERSION_1, VERSION_1_WITH_LOGS])
def test_a_round_is_written_so_that_an_earlier_version_reads_it(text: str) -> None:
    written = Manifest.from_json(json.loads(text)).to_json()
    assert written.pop("version") == 2
    assert written == json.loads(text)


def test_any_other_line_has_no_files_for_an_earlier_version_to_misread() -> None:
    behind = Snapshot(
        "count.0", 380, FILE, Kind.LOCAL, sent=380, first=381, number=9, channels={"sink.0": 350}
    )
    manifest = Manifest(400, {"count.0": behind, "map.0": Snapshot.round("map.0", 400)}, {"tweets.0": 40000})
    assert json.loads(json.dumps(manifest.to_json())) == {
        "version": 2,
        "position": 400,
        "snapshots": {
            "count.0": {
                "position": 380,
                "file": {"path": FILE.path, "size": 2048, "sha256": "9f2c"},
                "kind": "local",
                "sent": 380,
                "first": 381,
                "number": 9,
                "channels": {"sink.0": 350},
            },
            "map.0": {
                "position": 400, "file": None, "kind": "round", "sent": 400, "first": 401, "number": 400, "channels": {},
            },
        },
        "offsets": {"tweets.0": 40000},
    }  # fmt: skip


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
)


@given(SNAPSHOTS, st.integers(0, 99))
def test_every_line_comes_back_as_it_was(snapshot: Snapshot, position: int) -> None:
    manifest = Manifest(position, {"p": snapshot, "q": Snapshot.round("q", position, FILE)}, {"s.0": 1})
    back = Manifest.from_json(json.loads(json.dumps(manifest.to_json())))
    assert [back.snapshot(p) for p in "pqr"] == [manifest.snapshot(p) for p in "pqr"]
    assert (back.position, back.files, back.offsets) == (manifest.position, manifest.files, manifest.offsets)


@pytest.mark.parametrize("missing", ["position", "files", "offsets"])
def test_what_is_no_manifest_is_refused(missing: str) -> None:
    data = json.loads(VERSION_1)
    del data[missing]
    with pytest.raises(ValueError, match="no manifest"):
        Manifest.from_json(data)


def test_a_manifest_of_a_later_version_is_not_called_damaged(tmp_path: Path) -> None:
    """A driver that goes back to an older image must not take an older checkpoint in silence."""
    store = CheckpointStore(str(tmp_path))
    store.complete(Manifest.of_round(400, {}, {}))
    (path,) = tmp_path.glob("cp-00000400/*.json")
    path.write_text(json.dumps({"version": 4, "position": 400, "pieces": {}}))
    with pytest.raises(
        CheckpointError, match=r"version 4; .* up to 3: it was written by a newer version"
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
