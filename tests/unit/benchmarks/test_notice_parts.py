"""States that are as large as `benchmarks.notice --state-mb` says, and operators that do what those of the library do."""

from __future__ import annotations

import pytest

from benchmarks import notice
from benchmarks.notice_parts import BALLAST
from reprise.contract import Place
from reprise.spark_jobs.topology import load_topology, override
from reprise.spark_jobs.topology.binding import make_operator


@pytest.mark.parametrize("name", ["o0", "o4"])
def test_a_state_is_stored_with_its_ballast_and_read_with_it(name: str) -> None:
    usual = load_topology(notice.TOPOLOGY)
    spec = override(usual, notice.heavy(usual, 2)).operator(name)
    place, code = Place(name, 0, 1), make_operator(spec)
    tables = dict(code.freeze(code.initial(place))())
    assert 2 * 2**20 <= tables[BALLAST].nbytes < 2.1 * 2**20
    whole = make_operator(usual.operator(name))
    assert tables.keys() - whole.freeze(whole.initial(place))().keys() == {BALLAST}
    again = make_operator(spec)
    stored = again.freeze(again.restore(place, tables))()
    assert stored.keys() == tables.keys()
    assert all(stored[table].equals(tables[table]) for table in tables)
    assert make_operator(spec).kind is whole.kind
