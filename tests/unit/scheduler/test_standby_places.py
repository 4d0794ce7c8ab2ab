"""Standbys make room for each other in other failure domains, and how long that is looked for."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.scheduler import standby_places
from reprise.scheduler.model import Node
from reprise.scheduler.standby_places import differ, is_apart, with_standbys_apart
from tests.unit.scheduler.test_standby_placement import ZONE, placed, view_of


def test_two_nodes_are_in_different_domains_only_where_both_have_the_label() -> None:
    a, b, none = (
        Node(n, 1, 1000, labels=labels) for n, labels in (("a", {ZONE: "a"}), ("b", {ZONE: "b"}), ("n", {}))
    )
    assert differ(ZONE, a, b) is True and differ(ZONE, a, a) is False
    assert differ(ZONE, a, none) is None and differ(ZONE, None, b) is None


def test_partitions_whose_standbys_are_apart_are_those_of_which_both_nodes_are_known() -> None:
    nodes = {
        n: Node(n, 1, 1000, labels={ZONE: n[0]} if n != "none" else {}) for n in ("a", "a2", "b", "none")
    }
    standbys = {"apart": "b", "same": "a2", "no label": "none", "gone": "c", "nowhere": "b"}
    at = dict.fromkeys(["apart", "same", "no label", "gone"], "a")
    assert with_standbys_apart(ZONE, at, standbys, nodes) == {"apart"}


def test_what_a_partition_is_apart_from_follows_the_label_that_counts_for_it() -> None:
    zones: dict[str, str | None] = {"n1": "a", "n2": "b", "n3": "a", "n4": None}
    view = view_of(
        zones, {"p.0": "n1", "s.0": "n1"}, {"p.0": 1, "s.0": 1}, dict.fromkeys(zones, 1), without=["s.0"]
    )
    assert is_apart(view, "p.0", "n1#1", "n2#1") is True and is_apart(view, "p.0", "n1#1", "n3#1") is False
    assert is_apart(view, "p.0", "n1#1", "n4#1") is None and is_apart(view, "p.0", "n1#1", None) is None
    assert is_apart(view, "s.0", "n1#1", "n2#1") is None, "it is to have no standby"


def test_where_no_more_may_be_looked_at_nobody_makes_room_but_room_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standby_places, "LOOKS", 0)
    zones: dict[str, str | None] = {"n1": "a", "n2": "c", "n3": "b", "n4": "b"}
    at = {"p.0": "n1", "p.1": "n4"}
    view = view_of(zones, at, {"p.0": 9, "p.1": 1}, {"n1": 0, "n2": 1, "n3": 1, "n4": 0})
    assert placed(view) == {"p.0": "n2", "p.1": "n3"}, "the other way round both would be apart"


def test_one_goes_elsewhere_so_that_another_one_can_be_apart() -> None:
    """`p.0` could be in b or c, and takes the first by name, c; `p.1` could only be there."""
    zones: dict[str, str | None] = {"n1": "a", "n2": "c", "n3": "b", "n4": "b"}
    at = {"p.0": "n1", "p.1": "n4"}
    slots = {"n1": 0, "n2": 1, "n3": 1, "n4": 0}
    for first, second in ((9, 1), (1, 9)):
        assert placed(view_of(zones, at, {"p.0": first, "p.1": second}, slots)) == {"p.0": "n3", "p.1": "n2"}


def test_a_wide_topology_looks_for_room_that_others_could_make_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300 partitions in one of three zones, and room for a third of them in the others: the coordinator places standbys
    between two looks, and most of these find none."""
    calls, limit = 0, 10_000
    really = standby_places.Places._seek

    def counted(*of: Any) -> bool:
        nonlocal calls
        calls += 1
        return really(*of)

    monkeypatch.setattr(standby_places.Places, "_seek", counted)
    monkeypatch.setattr(standby_places, "LOOKS", limit)
    zones: dict[str, str | None] = {f"n{k}": "abc"[k % 3] for k in range(30)}
    at = {f"p.{k}": f"n{k % 10 * 3}" for k in range(300)}
    queries = {f"q{k}": [f"p.{k % 10}", f"p.{k}", f"p.{(k * 7) % 300}"] for k in range(10, 300)}
    worth = {q: 1 + k % 10 for k, q in enumerate(queries)}
    found = placed(view_of(zones, at, worth, dict.fromkeys(zones, 5), queries=queries))
    assert sum(zones[n] != "a" for n in found.values()) == 100
    assert len(found) == 150, "the others are in their own zone, where there is room"
    elsewhere, orders = 20, 2
    assert calls <= limit / elsewhere + orders * 3 * len(queries) + len(at)
