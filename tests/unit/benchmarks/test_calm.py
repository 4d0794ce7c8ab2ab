"""What `make bench-calm` makes of the times at which batches were shown."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from benchmarks.calm import Write, missing, phases
from benchmarks.calm_parts import ASLEEP, Ballast, SleepyFileSystem, make_known
from reprise.spark_jobs.contract import Inbox, Input, Place
from reprise.spark_jobs.storage.files import Files

BEGAN = 1000.0


def stream(upto: int, late: float = 0.5, stop: tuple[float, float] = (0.0, 0.0)) -> list[Write]:
    """A batch a second; those that would have been shown in a stop are shown at its end."""
    found = []
    for batch in range(1, upto + 1):
        due = BEGAN + batch
        at = due + late
        found.append(Write(batch, stop[1] if stop[0] <= at < stop[1] else at, due))
    return found


def test_a_stop_is_late_and_a_gap_in_its_own_phase_alone() -> None:
    writes = stream(100, stop=(1055.0, 1059.0))
    found = {p.phase: p for p in phases(writes, BEGAN, 1040.0, 1042.0, 1060.0, 1090.0)}
    assert list(found) == ["steady", "loss", "restoring", "catching up"]
    assert found["steady"].late_worst == found["catching up"].late_worst == 0.5
    assert found["restoring"].late_worst == 4.0
    assert found["restoring"].gap_worst == 4.5
    assert (found["restoring"].late_ratio, found["restoring"].gap_ratio) == (8.0, 4.5)
    assert (found["catching up"].late_ratio, found["catching up"].gap_ratio) == (1.0, 1.0)


def test_a_stop_that_does_not_end_is_a_gap_all_the_same() -> None:
    writes = [w for w in stream(100) if w.at < 1050.0]
    found = {p.phase: p for p in phases(writes, BEGAN, 1040.0, 1042.0, 1070.0, 1090.0)}
    assert found["restoring"].gap_worst == 20.5
    assert found["restoring"].late_worst == 0.5, "of those that were shown"
    assert (found["catching up"].batches, found["catching up"].late_worst) == (0, None)
    assert found["catching up"].gap_worst == 20.0


def test_batches_that_were_never_shown_are_named() -> None:
    assert missing(stream(10)) == []
    assert missing([w for w in stream(10) if w.batch not in (4, 7)]) == [4, 7]


def test_the_ballast_comes_back_as_it_was() -> None:
    place = Place("heavy", 1, 2)
    heavy = Ballast(megabytes=1)
    state, out = heavy.step(
        heavy.initial(place), Inbox(1, None, (Input("in", "in.0", pa.table({"n": [1, 2]})),))
    )
    assert out is not None and out.to_pydict() == {"rows": [2]}
    tables = heavy.freeze(state)()
    assert sum(t.nbytes for t in tables.values()) > 2**20
    again, _ = heavy.step(heavy.restore(place, tables), Inbox(2, None, ()))
    assert again[1] == 2
    assert again[0].equals(state[0])


@pytest.fixture
def location(tmp_path: Path) -> str:
    fsspec.register_implementation("sleepy", SleepyFileSystem, clobber=True)
    return f"sleepy://{tmp_path}/checkpoints"


def test_a_store_sleeps_while_it_is_told_to(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()
    monkeypatch.setattr("benchmarks.calm_parts.time.sleep", slept.append)
    files = Files(location)
    assert files.create("cp-1/a.state", b"state")
    assert (tmp_path / "checkpoints" / "cp-1" / "a.state").read_bytes() == b"state"
    assert files.read("cp-1/a.state") == b"state"
    assert slept == []
    (tmp_path / ASLEEP).write_text("60")
    assert files.read("cp-1/a.state") == b"state"
    assert files.read("cp-1/none") is None
    assert files.names("cp-1") == ["a.state"]
    assert slept and set(slept) == {60.0}


def test_every_process_with_the_folder_knows_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import entry_points

    make_known(tmp_path / "known")
    monkeypatch.syspath_prepend(str(tmp_path / "known"))
    (found,) = [e for e in entry_points(group="fsspec.specs") if e.name == "sleepy"]
    assert found.load() is SleepyFileSystem
