"""Where standbys go: apart from their partitions, so that least is lost with one failure domain, and not together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product

from hypothesis import assume, given
from hypothesis import strategies as st

from reprise.scheduler import Policy
from reprise.scheduler.model import (
    Desired,
    Node,
    PartitionView,
    Progress,
    QueryView,
    Snapshot,
    TopologyView,
)
from reprise.scheduler.standby_placement import placement
from reprise.scheduler.view import View, look
from reprise.scheduler.worth import by_worth

ZONE = "topology.kubernetes.io/zone"
COST = 100


def view_of(
    zones: Mapping[str, str | None],
    at: Mapping[str, str],
    priorities: Mapping[str, int],
    slots: Mapping[str, int],
    passive: bool = False,
    queries: Mapping[str, Collection[str]] | None = None,
    without: Collection[str] = (),
) -> View:
    """Partitions on nodes with room for so many standbys.  `queries`: the partitions that each needs; where it is not
    given, each partition is one.  `without`: partitions that are to have no standby, as sources."""
    used = {n: sum(node == n for node in at.values()) for n in zones}
    nodes = tuple(
        Node(n, 1, (used[n] + slots[n]) * COST, labels={} if zone is None else {ZONE: zone})
        for n, zone in zones.items()
    )
    partitions = tuple(PartitionView(p, cpu_milli=COST) for p in at)
    of = {p: [p] for p in at} if queries is None else queries
    views = tuple(QueryView(q, priorities[q], frozenset(members)) for q, members in of.items())
    wanted = frozenset(at).difference(without)
    topology = TopologyView(
        "t", partitions, views, True, wanted, wanted if passive else frozenset(), dict.fromkeys(wanted, ZONE)
    )
    ids = {n.name: n.id for n in nodes}
    desired = Desired(1, 1, 0, "1", {p: ids[n] for p, n in at.items()})
    progress = Progress("1", 1, 1, frozenset(ids.values()), dict.fromkeys(at, 5))
    return look(Snapshot(10.0, topology, True, nodes, progress, desired=desired), Policy(cpu_cap=1.0))


def placed(view: View, before: Mapping[str, str] | None = None) -> dict[str, str]:
    assert view.snapshot.desired is not None
    desired = view.snapshot.desired.next(standbys=before or {})
    found = placement(view, desired)
    return {p: n.partition("#")[0] for p, n in found.items()}


def lost(
    zones: Mapping[str, str | None],
    at: Mapping[str, str],
    worth: Mapping[str, int],
    standbys: Mapping[str, str],
    queries: Mapping[str, Collection[str]] | None = None,
) -> int:
    """Priority that is lost with one domain, summed over the domains that may be lost: each partition is a query, or as
    `queries` says."""
    taken = {
        p: zones[n] or n
        for p, n in at.items()
        if (s := standbys.get(p)) is None or zones[s] is None or zones[s] == zones[n] or zones[n] is None
    }
    of = {p: [p] for p in at} if queries is None else queries
    return sum(worth[q] * len({taken[p] for p in members if p in taken}) for q, members in of.items())


def every_placement(
    at: Mapping[str, str], slots: Mapping[str, int], without: Collection[str] = ()
) -> Iterator[dict[str, str]]:
    choices = [[None] if p in without else [None, *(n for n in slots if n != node)] for p, node in at.items()]
    for chosen in product(*choices):
        found = {p: n for p, n in zip(at, chosen, strict=True) if n is not None}
        if all(sum(x == n for x in found.values()) <= room for n, room in slots.items()):
            yield found


NAMES = ("n1", "n2", "n3", "n4")


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, str | None], dict[str, str], dict[str, int], dict[str, int]]:
    zones = {n: draw(st.sampled_from(["a", "b", "c", None])) for n in NAMES}
    at = {f"p.{i}": draw(st.sampled_from(NAMES)) for i in range(draw(st.integers(1, 5)))}
    worth = {p: draw(st.integers(1, 10)) for p in at}
    slots = {n: draw(st.integers(0, 2)) for n in NAMES}
    return zones, at, worth, slots


@given(cases())
def test_least_is_lost_with_one_domain_of_all_placements_that_there_are(
    case: tuple[dict[str, str | None], dict[str, str], dict[str, int], dict[str, int]],
) -> None:
    zones, at, worth, slots = case
    found = placed(view_of(zones, at, worth, slots))
    assert all(n != at[p] for p, n in found.items())
    assert all(sum(x == n for x in found.values()) <= slots[n] for n in NAMES)
    best = min(lost(zones, at, worth, other) for other in every_placement(at, slots))
    assert lost(zones, at, worth, found) == best


@given(cases())
def test_what_is_placed_stays(
    case: tuple[dict[str, str | None], dict[str, str], dict[str, int], dict[str, int]],
) -> None:
    """Nothing moves on and on; and nothing that is in another domain moves at all."""
    zones, at, worth, slots = case
    view = view_of(zones, at, worth, slots)
    first = placed(view)
    ids = {n.name: n.id for n in view.snapshot.nodes}
    again = placed(view, {p: ids[n] for p, n in first.items()})
    apart = {
        p for p in first if None not in (zones[first[p]], zones[at[p]]) and zones[first[p]] != zones[at[p]]
    }
    assert {p: again[p] for p in apart} == {p: first[p] for p in apart}
    assert lost(zones, at, worth, again) <= lost(zones, at, worth, first)
    assert placed(view, {p: ids[n] for p, n in again.items()}) == again


def test_a_standby_in_its_partitions_domain_moves_when_there_is_room_in_another() -> None:
    zones: dict[str, str | None] = {"n1": "a", "n2": "a", "n3": "b", "n4": None}
    at, worth = {"p.0": "n1"}, {"p.0": 1}
    near = view_of(zones, at, worth, {"n1": 1, "n2": 1, "n3": 0, "n4": 0})
    assert placed(near) == {"p.0": "n2"}, "better in the same domain than nowhere"
    far = view_of(zones, at, worth, {"n1": 1, "n2": 1, "n3": 1, "n4": 1})
    assert placed(far, {"p.0": "n2#1"}) == {"p.0": "n3"}


def test_standbys_of_one_query_are_not_on_one_node_where_that_can_be_avoided() -> None:
    partitions = tuple(PartitionView(p, cpu_milli=COST) for p in ("a.0", "b.0", "c.0", "d.0"))
    queries = (QueryView("b.0", 5, frozenset({"a.0", "b.0"})), QueryView("d.0", 5, frozenset({"c.0", "d.0"})))
    wanted = frozenset(p.id for p in partitions)
    nodes = (Node("n1", 1, 400), Node("n2", 1, 900), Node("n3", 1, 500))
    topology = TopologyView("t", partitions, queries, True, wanted)
    desired = Desired(1, 1, 0, "1", dict.fromkeys(wanted, "n1#1"))
    progress = Progress("1", 1, 1, frozenset(n.id for n in nodes), dict.fromkeys(wanted, 5))
    view = look(Snapshot(10.0, topology, True, nodes, progress, desired=desired), Policy(cpu_cap=1.0))
    found = placed(view)
    assert found["a.0"] != found["b.0"]
    assert found["c.0"] != found["d.0"]


@given(cases())
def test_passive_ones_that_are_not_measured_go_where_active_ones_may(
    case: tuple[dict[str, str | None], dict[str, str], dict[str, int], dict[str, int]],
) -> None:
    zones, at, worth, slots = case
    assume(any(slots.values()))
    active, passive = (placed(view_of(zones, at, worth, slots, kind)) for kind in (False, True))
    assert lost(zones, at, worth, active) == lost(zones, at, worth, passive)
    assert by_worth(view_of(zones, at, worth, slots))[0] in at
