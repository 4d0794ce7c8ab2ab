"""What maps of own operators let go; what they hold is tried in `test_state.py`."""

from __future__ import annotations

import pyarrow as pa

from reprise.spark_jobs.operators import state_map
from reprise.spark_jobs.operators.state_map import MapState


def test_keys_that_were_removed_are_let_go() -> None:
    held = MapState({"k": pa.int64()}, {"t": pa.string()})
    for first in range(0, 100_000, 1000):
        keys = pa.table({"k": range(first, first + 1000)})
        held.extend(keys.append_column("t", [["x"] * 1000]))
        held.remove(keys.slice(0, 999))
    assert len(held) == 100
    tables = held.freeze()()
    assert tables["keys"].num_rows <= 4 * state_map.COMPACT_FROM
    assert tables["rows"].num_rows <= 4 * state_map.COMPACT_FROM


def test_one_text_that_changes_all_the_time_takes_the_room_of_few() -> None:
    held = MapState({"k": pa.int64()}, {"t": pa.string()})
    for number in range(20_000):
        held[number % 10] = f"text {number}"
        if number % 100 == 0:
            held.freeze()
    assert held.freeze()()["rows"].num_rows <= 2 * state_map.COMPACT_FROM
    assert dict(held.items()) == {n: f"text {19_990 + n}" for n in range(10)}
