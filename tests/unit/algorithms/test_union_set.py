"""A set in two parts is to everybody the set of its elements."""

from __future__ import annotations

from collections.abc import Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import UnionSet
from tests.support.examples import examples

SETS = st.frozensets(st.sampled_from("abcdef"), max_size=6)
SHARED = frozenset("abc")


@given(SETS, SETS, SETS, SETS, st.booleans())
@examples(200)
def test_it_is_the_set_of_its_elements(
    shared: frozenset[str], own: frozenset[str], theirs: frozenset[str], more: frozenset[str], as_one: bool
) -> None:
    plain = shared | own
    ours = UnionSet(shared, own)
    expected = theirs | more
    other: Set[str] = expected if as_one else UnionSet(theirs, more)
    assert sorted(ours) == sorted(plain) and len(ours) == len(plain)
    assert [element in ours for element in "abcdef"] == [element in plain for element in "abcdef"]
    assert (ours == other, other == ours) == (plain == expected, plain == expected)
    assert (ours <= other, ours >= other) == (plain <= expected, plain >= expected)
    assert ours.isdisjoint(other) == ours.isdisjoint(list(other)) == plain.isdisjoint(expected)
    assert ours & other == other & ours == plain & expected
    assert ours | other == plain | expected and ours - other == plain - expected


def test_elements_that_are_shared_already_are_not_counted_twice() -> None:
    assert UnionSet(SHARED, "cd").own == {"d"}


def test_two_of_the_same_shared_part_differ_by_their_own() -> None:
    assert UnionSet(SHARED, "d") != UnionSet(SHARED, "e")
    assert UnionSet(SHARED, "d") == UnionSet(frozenset("abcd")) == UnionSet(frozenset("ad"), "bc")


def test_it_is_no_key() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(UnionSet(SHARED))


def test_a_set_has_what_it_shares_and_what_it_has_beside() -> None:
    shared = frozenset({"a", "b"})
    common, own = UnionSet.parts_of(UnionSet(shared, ["b", "c"]))
    assert common is shared and own == {"c"}
    assert UnionSet.parts_of({"a"}) == (frozenset(), {"a"})
