"""Room in other failure domains goes to queries as wholes, so that the least priority is lost with one domain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.unit.scheduler.test_standby_placement import NAMES, cases, every_placement, lost, placed, view_of


def test_a_query_of_which_all_has_room_comes_before_a_part_of_a_more_valuable_one() -> None:
    """One of three could be apart: of the query of 5 two are in the zone, so it would be lost with either of them."""
    zones: dict[str, str | None] = {"n1": "a", "n2": "b"}
    at, slots = {"p.0": "n1", "p.1": "n1", "p.2": "n1"}, {"n1": 0, "n2": 1}
    queries = {"one": ["p.0", "p.1"], "other": ["p.2"]}
    assert placed(view_of(zones, at, {"one": 5, "other": 4}, slots, queries=queries)) == {"p.2": "n2"}
    slots = {"n1": 0, "n2": 2}
    found = placed(view_of(zones, at, {"one": 5, "other": 4}, slots, queries=queries))
    assert found == {"p.0": "n2", "p.1": "n2"}


def test_a_query_that_a_domain_takes_in_any_case_leaves_the_room_to_another() -> None:
    """Its source is in the zone, and has no standby."""
    zones: dict[str, str | None] = {"n1": "a", "n2": "b"}
    at, slots = {"source": "n1", "p.0": "n1", "p.1": "n1"}, {"n1": 0, "n2": 1}
    queries = {"one": ["source", "p.0"], "other": ["p.1"]}
    view = view_of(zones, at, {"one": 9, "other": 1}, slots, queries=queries, without=["source"])
    assert placed(view) == {"p.1": "n2"}
    alone = view_of(
        zones, at, {"one": 9, "other": 1}, {**slots, "n2": 2}, queries=queries, without=["source"]
    )
    assert placed(alone) == {"p.0": "n2", "p.1": "n2"}, "room that is left shortens a restoration"


def test_where_neither_priority_nor_cost_says_which_queries_go_together_all_choices_are_tried() -> None:
    """Three that share a partition are worth 9 together; first is the one of 4, by either order, and then one of 3."""
    zones: dict[str, str | None] = {"n1": "a", "n2": "b"}
    queries = {"q1": ["s.0", "p.1"], "q2": ["s.0", "p.2"], "q3": ["s.0", "p.3"], "q4": ["p.4", "p.5"]}
    at = dict.fromkeys(["s.0", "p.1", "p.2", "p.3", "p.4", "p.5"], "n1")
    worth = {"q1": 3, "q2": 3, "q3": 3, "q4": 4}
    found = placed(view_of(zones, at, worth, {"n1": 0, "n2": 4}, queries=queries))
    assert found.keys() == {"s.0", "p.1", "p.2", "p.3"}


Shared = tuple[
    dict[str, str | None], dict[str, str], dict[str, int], dict[str, int], dict[str, set[str]], set[str]
]


@st.composite
def shared_cases(draw: st.DrawFn) -> Shared:
    """Queries that need some of the same partitions, not all of which are to have a standby."""
    zones, at, _, slots = draw(cases())
    some = st.sets(st.sampled_from(sorted(at)), min_size=1)
    queries = {f"q{k}": draw(some) for k in range(draw(st.integers(1, 4)))}
    worth = {q: draw(st.integers(1, 10)) for q in queries}
    without = draw(st.sets(st.sampled_from(sorted(at)), max_size=1))
    return zones, at, worth, slots, queries, without


@pytest.mark.wide
@examples(300)
@given(shared_cases())
def test_least_is_lost_of_queries_that_share_partitions(case: Shared) -> None:
    zones, at, worth, slots, queries, without = case
    view = view_of(zones, at, worth, slots, queries=queries, without=without)
    found = placed(view)
    assert without.isdisjoint(found)
    assert all(n != at[p] for p, n in found.items())
    assert all(sum(x == n for x in found.values()) <= slots[n] for n in NAMES)
    others = every_placement(at, slots, without)
    best = min(lost(zones, at, worth, other, queries) for other in others)
    assert lost(zones, at, worth, found, queries) == best
    ids = {n.name: n.id for n in view.snapshot.nodes}
    again = placed(view, {p: ids[n] for p, n in found.items()})
    assert again == found


@pytest.mark.parametrize("room", [0, 1])
def test_of_more_than_are_searched_whole_queries_are_spared(room: int) -> None:
    """Forty queries of three partitions each in one zone, and room for twenty of them in the other one: those of most
    priority; and for two partitions more, with which no other query would be spared."""
    zones: dict[str, str | None] = {"n1": "a", "n2": "b", "n3": "b"}
    at = {f"p.{q}.{k}": "n1" for q in range(40) for k in range(3)}
    queries = {f"q{q}": [f"p.{q}.{k}" for k in range(3)] for q in range(40)}
    worth = {f"q{q}": 1 + (q * 7) % 40 for q in range(40)}
    slots = {"n1": 0, "n2": 30 + room, "n3": 30 + room}
    found = placed(view_of(zones, at, worth, slots, queries=queries))
    assert len(found) == 60 + 2 * room
    assert lost(zones, at, worth, found, queries) == sum(range(1, 21))
