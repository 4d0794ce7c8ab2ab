"""What `make bench-calm` makes of the times at which batches were shown."""

from __future__ import annotations

from benchmarks.calm import Write, phases

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
