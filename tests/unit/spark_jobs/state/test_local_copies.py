"""Copies of states on their node: handed out as what a manifest names or not at all, bounded, and never in anybody's way."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs.errors import DamagedError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.local_copies import LocalCopies
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.window_log import End, Record, RecordKind, encode_segment

TABLES = {"counts": pa.table({"n": [1, 2, 3]})}


def file(position: int, name: str = "a.0", size: int = 10) -> tuple[StateFile, bytes]:
    data = (f"{position}.{name}.".encode() * size)[:size]
    path = f"cp-{position:08d}/{name}.host-1.1.1.1.state"
    return StateFile(path, size, hashlib.sha256(data).hexdigest()), data


@pytest.fixture
def copies(tmp_path: Path) -> LocalCopies:
    copies = LocalCopies(tmp_path / "states")
    copies.allow(25)
    return copies


def kept(copies: LocalCopies, position: int, name: str = "a.0", size: int = 10) -> StateFile:
    named, data = file(position, name, size)
    copies.keep(named, position, [data[:3], memoryview(data)[3:]])
    return named


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "states").glob("*"))


def test_what_was_kept_is_read_as_it_was(copies: LocalCopies) -> None:
    named = kept(copies, 10)
    assert copies.read(named) == file(10)[1]
    assert copies.read(file(20)[0]) is None
    other = StateFile(named.path, named.size, "0" * 64)
    assert copies.read(other) is None, "the same name, and other bytes"
    assert (copies.read_here, copies.read_there, copies.used) == (1, 2, 10)


def test_the_oldest_positions_go_when_there_is_no_room(copies: LocalCopies, tmp_path: Path) -> None:
    new, old, third = kept(copies, 20), kept(copies, 10), kept(copies, 30)
    assert copies.read(old) is None
    assert copies.read(new) and copies.read(third)
    assert copies.used == 20
    assert len(names(tmp_path)) == 2
    assert copies.read(kept(copies, 40, size=26)) is None, "larger than all room"
    assert copies.read(new) and copies.read(third)
    copies.allow(10)
    assert copies.read(new) is None and copies.read(third)
    copies.allow(0)
    assert (copies.used, names(tmp_path)) == (0, [])


def test_what_nobody_goes_back_to_any_more_goes(copies: LocalCopies, tmp_path: Path) -> None:
    old, new = kept(copies, 10), kept(copies, 20)
    copies.forget(20)
    assert copies.read(old) is None and copies.read(new)
    assert copies.used == 10
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("how", ["other bytes", "shorter", "gone"])
def test_a_copy_that_is_damaged_or_gone_is_none(copies: LocalCopies, tmp_path: Path, how: str) -> None:
    named = kept(copies, 10)
    path = tmp_path / "states" / names(tmp_path)[0]
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(b"x" * (named.size if how == "other bytes" else 3))
    assert copies.read(named) is None
    assert (copies.used, copies.read_here, names(tmp_path)) == (0, 0, [])
    assert copies.read(kept(copies, 10)), "stored again, it is kept again"


def test_a_disk_that_takes_nothing_costs_a_copy_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "states").write_text("in the way")
    copies = LocalCopies(tmp_path / "states")
    copies.allow(25)
    named = kept(copies, 10)
    assert copies.read(named) is None
    assert copies.used == 0


def test_a_store_with_copies_reads_them_first_and_falls_back(tmp_path: Path) -> None:
    (tmp_path / "stream.json").write_text('{"began": 1.0}')
    copies = LocalCopies(tmp_path / "here" / "states")
    copies.allow(2**20)
    store = CheckpointStore(str(tmp_path), copies=copies)
    named = store.write_state(10, "a.0", "host-1", TABLES)
    there = tmp_path / named.path
    whole = there.read_bytes()
    there.unlink()
    assert store.read_state(named)["counts"].equals(TABLES["counts"])
    (copy,) = (tmp_path / "here" / "states").iterdir()
    copy.write_bytes(b"damaged")
    there.write_bytes(whole)
    assert store.read_state(named)["counts"].equals(TABLES["counts"])
    there.write_bytes(whole[:-1])
    with pytest.raises(DamagedError, match="SHA-256"):
        store.read_state(named)
    assert (copies.read_here, copies.read_there) == (1, 2)


def test_earlier_segments_of_a_log_are_read_here_too(tmp_path: Path) -> None:
    """And from the store where a copy is damaged."""
    copies = LocalCopies(tmp_path / "states")
    copies.allow(10_000)
    store = CheckpointStore(str(tmp_path / "store"), copies=copies)
    segments = [
        encode_segment([Record(RecordKind.OPEN, b, b"x" * b), Record(RecordKind.END, b, End(1).encode())])
        for b in (1, 2, 3)
    ]
    named: list[StateFile] = []
    for b, data in enumerate(segments, 1):
        paths = tuple(f.path for f in named)
        named.append(store.write_segment(b, "a.0", "h.1", data, paths, sum(f.size for f in named)))
    first = tmp_path / "store" / named[0].path
    stored = first.read_bytes()
    first.unlink()
    assert [s.data for s in store.read_segments(named[-1])] == segments[::-1]
    (copy,) = (path for path in (tmp_path / "states").glob("*") if path.read_bytes() == segments[0])
    copy.write_bytes(b"damaged")
    first.write_bytes(stored)
    assert [s.data for s in store.read_segments(named[-1])] == segments[::-1]
    (tmp_path / "store" / "stream.json").write_text("{}")
    first.unlink()
    with pytest.raises(DamagedError, match="cp-00000001"):
        store.read_segments(named[-1])
