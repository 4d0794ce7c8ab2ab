"""The operator alone, with a failure after every batch; then the whole topology, in this process and without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from my_operators import Record

from reprise.contract import SpecError
from reprise.testing import check_recovery, inbox, load_topology, run_local

TOPOLOGY = Path(__file__).parent / "topology.yaml"


def test_a_record_is_told_once_and_survives_failures() -> None:
    batches = [
        inbox(1, pa.table({"tag": ["a", "b", "a"], "count": [1, 5, 3]})),
        inbox(2, pa.table({"tag": ["b", "a"], "count": [4, 9]})),
        inbox(3, pa.table({"tag": ["b"], "count": [2]})),
    ]
    # Restores from a checkpoint after every batch, and fails where the rows differ from those without a failure.
    first, second, third = check_recovery(Record(key="tag", value="count"), batches)
    assert first.to_pylist() == [{"tag": "a", "count": 3}, {"tag": "b", "count": 5}]
    assert second.to_pylist() == [{"tag": "a", "count": 9}]
    assert third is None


def test_a_wrong_parameter_is_refused() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        Record(key="tag", value="count", least=0)


def test_the_topology_gives_rows() -> None:
    rows = 0
    for outputs in run_local(load_topology(TOPOLOGY), batches=20):
        rows += sum(
            table.num_rows
            for name, table in outputs.items()
            if table is not None and name.startswith("record.")
        )
    assert rows > 0
