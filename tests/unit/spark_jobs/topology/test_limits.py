"""A large topology is expanded in memory that follows its partitions, and one that is too large is refused with a number."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import UnionSet
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, check, expand, from_object
from reprise.spark_jobs.topology.limits import MAX_PARTITIONS
from tests.support.topologies import document, operator, source


def chain(
    stages: int, parallelism: int, outputs: int | None = None, how: dict[str, Any] | None = None
) -> StreamTopology:
    """A source and operators one after the other; the last has the output."""
    items, last = [source("s", parallelism)], "s"
    for k in range(1, stages):
        items.append(operator(f"o{k}", {"from": last, **(how or {"by": ["k"]})}, parallelism=parallelism))
        last = f"o{k}"
    items.append(operator("out", {"from": last, "by": ["k"]}, parallelism=outputs or parallelism, output={}))
    return from_object(document(*items))


def test_partitions_that_read_the_same_share_their_edges_and_queries_what_they_need() -> None:
    """Three million edges and a million members: one by one they took 420 MiB, and an operator its life."""
    topology = expand(chain(9, 600, 300))
    assert sum(len(p.upstream) for p in topology.partitions.values()) == 8 * 600 * 600 + 300 * 600
    assert len({id(p.upstream) for p in topology.partitions.values()}) <= 10
    assert len({id(d.targets) for p in topology.partitions.values() for d in p.downstream}) <= 10
    assert len({id(u) for p in topology.partitions.values() for u in p.upstream}) <= 10 * 600
    assert {len(query.partitions) for query in topology.queries.values()} == {9 * 600 + 1}
    assert len({id(query.partitions.shared) for query in topology.queries.values()}) == 1


@pytest.mark.parametrize(
    ("resource", "field", "said"),
    [
        (
            chain(10, 1000, 1),
            "spec",
            "10,001 partitions together (parallelism), and 10,000 is the most; 's' has 1,000",
        ),
        (chain(20, 500, 500, {"forward": True}), "spec", "10,500 partitions"),
        (
            chain(10, 999, 10, {"broadcast": True}),
            "",
            "",
        ),
    ],
)
def test_too_many_partitions_are_refused_by_check_and_by_expand(
    resource: StreamTopology, field: str, said: str
) -> None:
    if not field:
        check(resource)
        assert len(expand(resource).partitions) == MAX_PARTITIONS
        return
    for refuse in (check, expand):
        with pytest.raises(SpecError) as caught:
            refuse(resource)
        assert caught.value.field == field
        assert said in caught.value.reason


def test_too_many_edges_name_the_input_with_most_of_them() -> None:
    wide = [source(f"s{k}", 900) for k in range(4)]
    inputs = [{"from": f"s{k}", "by": ["k"]} for k in range(4)]
    some = [operator(f"o{k}", *inputs, parallelism=900) for k in range(4)]
    joined = operator("out", {"from": "o0", "by": ["k"]}, parallelism=1, output={})
    with pytest.raises(SpecError) as caught:
        check(from_object(document(*wide, *some, joined)))
    assert caught.value.field == "spec.operators[o0].inputs[0]"
    assert "12,960,900 edges, and 10,000,000 is the most" in caught.value.reason


def test_too_many_queries_that_need_much_name_the_output() -> None:
    """Each of the last two operators makes a thousand queries, of seven and eight thousand partitions."""
    items = [source("s", 1000)]
    for k in range(1, 9):
        output = {"output": {}} if k >= 7 else {}
        items.append(
            operator(
                f"o{k}", {"from": f"o{k - 1}" if k > 1 else "s", "by": ["k"]}, parallelism=1000, **output
            )
        )
    with pytest.raises(SpecError) as caught:
        check(from_object(document(*items)))
    assert caught.value.field == "spec.operators[o8].output"
    assert "15,002,000 partitions in sum over all queries, and 10,000,000 is the most" in caught.value.reason
    assert "8,001,000" in caught.value.reason


@given(
    st.frozensets(st.sampled_from("abcdef")),
    st.frozensets(st.sampled_from("abcdef")),
    st.frozensets(st.sampled_from("abcdef")),
)
def test_a_union_set_is_a_set(shared: frozenset[str], own: frozenset[str], other: frozenset[str]) -> None:
    found: Set[str] = UnionSet(shared, own)
    plain = shared | own
    assert sorted(found) == sorted(plain)
    assert len(found) == len(plain)
    assert (found == other, other == found) == (plain == other, other == plain)
    assert (found <= other, other <= found, found >= other) == (
        plain <= other,
        other <= plain,
        plain >= other,
    )
    assert (found & other, other & found, found - other) == (plain & other, other & plain, plain - other)
    assert found.isdisjoint(other) == plain.isdisjoint(other)
    assert found.isdisjoint(dict.fromkeys(other)) == plain.isdisjoint(other)
    assert (found <= dict.fromkeys(other).keys()) == (plain <= other)
    assert all((letter in found) == (letter in plain) for letter in "abcdef")
