"""The formulas that costs of checkpoints follow from."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.checkpoint_costs import (
    Source,
    back_along,
    derived,
    furthest_s,
    headers_a_second,
    measured,
    messages_between,
    output_held,
    stored_a_second,
    unknown,
)


def test_what_is_not_known_has_no_number() -> None:
    assert [f.source for f in (measured(1.0, "a"), derived(1.0, "b"), unknown("c"))] == list(Source)
    assert unknown("c").value is None and unknown("c").basis == "c"


def test_a_partition_stores_its_state_once_in_its_interval() -> None:
    assert stored_a_second({"a.0": 100, "b.0": 300}, {"a.0": 10.0, "b.0": 30.0}) == 20.0
    assert furthest_s(30.0, 0.2) == pytest.approx(36.0)


def test_a_header_goes_to_each_node_once_an_operator() -> None:
    """`a.0` is read by three partitions of `b` on two other nodes, and by `c.0` where it is itself; `b.0` by nobody."""
    readers = {"a.0": [("b.0", "b.1", "b.2"), ("c.0",)], "b.0": []}
    home = {"a.0": "n1", "b.0": "n2", "b.1": "n3", "b.2": "n3", "c.0": "n1"}
    assert messages_between(readers, home) == 2
    assert messages_between(readers, {**home, "c.0": "n2"}) == 3, (
        "another operator on a node that had one already"
    )
    assert messages_between(readers, {"a.0": "n1", "b.0": "n2"}) == 1, "who has no place is sent nothing"
    assert headers_a_second(16, 3, 0.5) == 3 * (8 + 16 * 8 + 2 * 2) * 2


@given(st.integers(1, 6), st.data())
def test_a_path_goes_back_by_the_sum_of_its_partitions(count: int, data: st.DataObject) -> None:
    names = [f"p{k}" for k in range(count)]
    edges = data.draw(st.sets(st.sampled_from(list(itertools.combinations(names, 2)) or [("p0", "p0")])))
    readers = {p: [b for a, b in edges if a == p and a != b] for p in names}
    own = {p: data.draw(st.integers(1, 5).map(float)) for p in names}

    def longest(p: str) -> float:
        return own[p] + max((longest(r) for r in readers[p]), default=0.0)

    assert back_along(names, readers, own) == {p: longest(p) for p in names}
    few = names[::2]
    assert back_along(few, {p: [r for r in readers[p] if r in few] for p in few}, own) == back_along(
        few, readers, own
    )


def test_output_is_stored_as_often_as_the_slowest_reader_lets_it_be_held() -> None:
    readers = {"a.0": ["b.0", "c.0"], "b.0": ["c.0"], "c.0": []}
    times = {"a.0": 10.0, "b.0": 5.0, "c.0": 40.0}
    assert output_held(readers, times, 0.5) == pytest.approx(40 * 1.5 / 5)
    assert output_held({"c.0": []}, times, 0.5) == 0.0
