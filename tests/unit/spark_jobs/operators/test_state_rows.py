"""What lists and deques of own operators let go; what they hold is tried in `test_state.py`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reprise.spark_jobs.operators import state_rows
from reprise.spark_jobs.operators.state_rows import DequeState, ListState


def test_rows_that_were_taken_are_let_go() -> None:
    held = DequeState({"v": pa.int64()})
    for first in range(0, 1_000_000, 50_000):
        held.extend(pa.table({"v": range(first, first + 50_000)}))
        held.popleft_rows(len(held) - 10)
    assert held.freeze()()["rows"].num_rows < state_rows.SEGMENT_ROWS + 10
    assert held[0] == 1_000_000 - 10


def test_one_by_one_is_as_by_the_batch_over_the_end_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_rows, "SEGMENT_ROWS", 4)
    monkeypatch.setattr(state_rows, "AT_ONCE", 3)
    one, whole = ListState({"v": pa.int64()}), ListState({"v": pa.int64()})
    for number in range(11):
        one.append(number)
    whole.extend(pa.table({"v": range(11)}))
    assert one.table() == whole.table() == one.take(range(11))
    assert one.take([9, 0, 4, 9]).column("v").to_pylist() == [9, 0, 4, 9]
