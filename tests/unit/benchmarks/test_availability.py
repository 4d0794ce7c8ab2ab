"""The benchmark of ways to come back: its topologies are valid, and what it reads of records."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.availability import MODES, OPERATORS, Figures, resource_of, standstill, table
from reprise.controller.local.report.history import Writes
from reprise.spark_jobs.topology import check
from reprise.spark_jobs.topology.binding import unbound


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("mode", [m for m in MODES if m != "passive-standby"])
def test_each_mode_is_for_each_operator(op: str, mode: str) -> None:
    resource = resource_of(op, mode)
    check(resource)
    assert list(unbound(resource)) == []
    assert resource.operator("lost").availability == mode


def test_the_longest_time_without_a_batch_begins_before_the_kill() -> None:
    written = np.array([1.0, 2.0, 3.0, 6.0, 6.5, 7.0])
    writes = Writes(np.arange(1, 7), written, written)
    assert standstill(writes, 3.5) == (6.0, 3.0)
    assert standstill(writes, 0.5) == (None, None)
    assert standstill(writes, 9.0) == (None, None)


def test_medians_stand_beside_their_figures() -> None:
    runs = [Figures("filter", "upstream-backup", "done", 1.0, 0.5, r, r + 1, True) for r in (2.0, 9.0, 3.0)]
    other = Figures("aggregate", "amnesia", "done", None, None, None, None, False)
    rows = table([*runs, other]).rows
    assert rows[0] == ("filter, upstream-backup", "1.00", "0.50", "3.00", "4.00", "47.62", "yes", "3")
    assert rows[1] == ("aggregate, amnesia", "-", "-", "-", "-", "", "**no**", "1")
