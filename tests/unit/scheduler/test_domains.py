"""Primaries by failure domain: at the first start, in plans and when nodes are emptied; and what it must not do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle

import pytest

from reprise.algorithms.domains import Needs, Rank, lost_with, rank_of
from reprise.scheduler import PartitionView, Policy, QueryView, TopologyView, domains
from reprise.scheduler.costs import normal_costs
from reprise.scheduler.domains import Losses, domains_of, losses, needs, regarded, regarding
from reprise.scheduler.eviction import Placed, plan_first
from reprise.scheduler.model import Desired, Node
from reprise.scheduler.placement import spread as by_room
from reprise.scheduler.precomputed import Planner
from reprise.scheduler.rebalancing import BEGINS, spread
from reprise.scheduler.standby_placement import placement, staying
from reprise.scheduler.view import View, look
from tests.support.recovery_simulator import World

ZONE = "topology.kubernetes.io/zone"


def chains(queries: int = 5, length: int = 4, cpu: int = 100) -> TopologyView:
    """Queries that share nothing, operator by operator as a resource lists them."""
    ids = [f"o{k}.{q}" for k in range(length) for q in range(queries)]
    ups = {f"o{k}.{q}": (f"o{k - 1}.{q}",) if k else () for k in range(length) for q in range(queries)}
    partitions = tuple(PartitionView(p, upstream=ups[p], cpu_milli=cpu) for p in ids)
    mine = [frozenset(f"o{k}.{q}" for k in range(length)) for q in range(queries)]
    views = tuple(QueryView(f"o{length - 1}.{q}", q + 1, mine[q]) for q in range(queries))
    return TopologyView("chains", partitions, views)


class Zones(World):
    """Nodes take zones in turn, as those of `reprise run --label` do."""

    zones: str = "ab"

    def add(self, name: str, cpu: int = 1000) -> str:
        node = super().add(name, cpu)
        digits = int("".join(c for c in name if c.isdigit()))
        labels = {ZONE: self.zones[(digits - 1) % len(self.zones)]} if self.zones else {}
        self.nodes[node] = replace(self.nodes[node], labels=labels)
        return node


def running(
    topology: TopologyView | None = None, nodes: int = 4, label: str | None = ZONE, **policy: object
) -> Zones:
    settings = Policy(nodes_wanted=nodes, failure_domain=label, **policy)  # type: ignore[arg-type]
    w = Zones(topology or chains(), settings)
    w.started(nodes)
    return w


def assignment(w: World) -> Mapping[str, str]:
    assert w.desired is not None
    return w.desired.assignment


def lost(w: World) -> dict[str, int]:
    """The priority that each zone would take."""
    zone = {n.id: n.labels.get(ZONE, n.id) for n in w.nodes.values()}
    queries = [Needs(q.priority, q.partitions) for q in w.topology.queries]
    return lost_with(queries, {p: zone[n] for p, n in assignment(w).items()})


def test_at_the_first_start_each_query_is_in_one_zone() -> None:
    assert rank_of(lost(running(label=None))) == (30, 15), "spread evenly, each zone takes all"
    w = running()
    assert rank_of(lost(w)) == (15, 8)
    assert w.healthy()
    assert any("20 partitions on 4 nodes; of a priority of 15, 7.5 would be lost" in line for line in w.log)
    assert all(line.count("failure domains") == 1 for line in w.log if " start: " in line)


def test_nodes_are_as_full_as_before() -> None:
    """All of it would fit into one zone, and no domain would be lost with more than that: nodes are not left empty."""
    w = running(chains(queries=6, length=4, cpu=20), nodes=4)
    counts = [list(assignment(w).values()).count(n) for n in w.nodes]
    assert sum(counts) == 24
    assert max(counts) <= 7
    view = look(w.snapshot(), w.policy)
    now = spread(view, normal_costs(view))
    assert now.greatest - now.mean <= BEGINS


def test_of_few_large_partitions_no_node_is_fuller_than_the_fullest_would_have_been() -> None:
    """Each would have a node of its own: 20, 20, 40 and 40 on four nodes, of which one may stay empty."""
    sizes = {"source": 200, "parser": 200, "x": 400, "y": 400}
    ups = {"source": (), "parser": ("source",), "x": ("parser",), "y": ("parser",)}
    partitions = tuple(PartitionView(p, upstream=ups[p], cpu_milli=c) for p, c in sizes.items())
    both = frozenset({"source", "parser"})
    queries = tuple(QueryView(q, worth, both | {q}) for q, worth in (("x", 5), ("y", 1)))
    w = running(TopologyView("t", partitions, queries))
    assert rank_of(lost(w)) == (7, 6)
    load = [sum(sizes[p] for p, n in assignment(w).items() if n == node) for node in w.nodes]
    assert max(load) == 400


def test_that_a_node_is_full_already_is_no_reason_to_fill_another_one() -> None:
    sizes = {"runs": 700, "x": 300, "y": 300}
    partitions = tuple(PartitionView(p, cpu_milli=c) for p, c in sizes.items())
    queries = (QueryView("y", 5, frozenset({"x", "y"})), QueryView("runs", 1, frozenset({"runs"})))
    w = Zones(TopologyView("t", partitions, queries), Policy(nodes_wanted=3, failure_domain=ZONE))
    for name in ("n1", "n2", "n3"):
        w.add(name)
    w.start_driver()
    w.drive()
    view, added = look(w.snapshot(), w.policy), {"x": "n2#1", "y": "n3#1"}
    assert regarding(view, sizes, {"runs": "n1#1"}, added) == added, "together they would fill n2 to 60 %"
    assert len(set(regarding(view, {**sizes, "x": 100, "y": 100}, {"runs": "n1#1"}, added).values())) == 1


@pytest.mark.parametrize("zones", ["", "a"])
def test_without_zones_that_differ_all_is_as_without_the_field(zones: str) -> None:
    """Nodes without the label are domains of their own, and a plan may still help there; in one zone nothing can."""
    w = Zones(chains(), Policy(nodes_wanted=4, failure_domain=ZONE))
    w.zones = zones
    w.started(4)
    plain = running(label=None)
    view = look(w.snapshot(), w.policy)
    if zones:
        assert assignment(w) == assignment(plain)
        assert not any("failure domain" in line for line in w.log)
    else:
        assert set(domains_of(ZONE, view.usable).values()) == {f"node n{k}#1" for k in (1, 2, 3, 4)}
        by_node = [lost_with(needs(view), dict(assignment(one))) for one in (w, plain)]
        assert rank_of(by_node[0]) < rank_of(by_node[1])


def test_what_is_restored_goes_to_where_the_rest_of_its_query_is() -> None:
    """One node of each zone is lost with half of the queries, and two others come: the zones take no more than before."""
    w = running(chains(cpu=120))
    before = rank_of(lost(w))
    w.kill("n1", "n2")
    w.add("n5")
    w.add("n6")
    w.run(30)
    assert w.healthy()
    assert w.incident is None
    assert any("failure domains" in plan.note for plan in w.plans)
    assert rank_of(lost(w)) == before
    plain = running(chains(cpu=120), label=None)
    plain.kill("n1", "n2")
    plain.add("n5")
    plain.add("n6")
    plain.run(30)
    assert rank_of(lost(plain)) > before


def test_a_plan_brings_back_the_same_queries_with_domains_and_without() -> None:
    """There is room for some of them; which ones the planner says, and the domains only where they go."""
    found = []
    for label in (ZONE, None):
        w = running(chains(queries=6, cpu=120), nodes=4, label=label)
        w.desired = replace(w.desired, assignment=dict(sorted(assignment(w).items())))  # type: ignore[type-var]
        view = look(w.snapshot(), w.policy)
        everything = {p.id: "lost" for p in w.topology.partitions}
        view = replace(view, usable=view.usable[:2], failed=everything, survivors={})
        costs = normal_costs(view)
        placed = plan_first(view, costs, Planner(None, None), 4)
        after = regarded(view, costs, placed, 4)
        assert after.planned.plan == placed.planned.plan
        assert after.planned.added.keys() == placed.planned.added.keys()
        for node in view.usable:
            used = sum(costs[p] for p, n in after.planned.added.items() if n == node.id)
            assert used <= view.policy.cap_of(node.cpu_milli)
        found.append(set(after.planned.plan.queries))
    assert found[0] == found[1] != set()


@pytest.mark.parametrize(("as_planned", "regarding_domains"), [(True, True), (True, False), (False, False)])
def test_a_plan_stays_as_it_was_where_the_rest_would_have_no_place_any_more(
    as_planned: bool, regarding_domains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has none in either case, less is lost with a domain at least."""
    w = running(chains(cpu=120))
    view = look(w.snapshot(), w.policy)
    view = replace(view, failed={p.id: "lost" for p in w.topology.partitions}, survivors={})
    costs = normal_costs(view)
    placed = plan_first(view, costs, Planner(None, None), 4)

    def rest_fits(_view: object, _costs: object, one: Placed, _nodes: int) -> bool:
        return as_planned if one is placed else regarding_domains

    monkeypatch.setattr(domains, "rest_fits", rest_fits)
    after = regarded(view, costs, placed, 4)
    changed = after.planned.added != placed.planned.added
    assert changed == (as_planned == regarding_domains)


@pytest.mark.parametrize(
    ("as_planned", "regarding_domains", "changes"),
    [(3, 4, False), (3, 3, True), (2, 2, True), (2, 3, False), (4, 4, True), (4, 5, False), (5, 5, True)],
)
def test_a_plan_stays_as_it_was_where_the_rest_would_wait_for_one_node_more(
    as_planned: int, regarding_domains: int, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four nodes are there, and the rest has a place with so many."""
    w = running(chains(cpu=120))
    view = look(w.snapshot(), w.policy)
    failed = {p.id: "lost" for p in w.topology.partitions}
    view = replace(view, usable=view.usable[:2], failed=failed, survivors={})
    costs = normal_costs(view)
    placed = plan_first(view, costs, Planner(None, None), 4)
    spread_out = replace(placed.planned, added=dict(zip(placed.planned.added, _turns(view), strict=False)))
    placed = replace(placed, planned=spread_out)

    def rest_fits(_view: object, _costs: object, one: Placed, nodes: int) -> bool:
        return nodes >= (as_planned if one is placed else regarding_domains)

    monkeypatch.setattr(domains, "rest_fits", rest_fits)
    after = regarded(view, costs, placed, 4)
    assert (after.planned.added != placed.planned.added) == changes


def _turns(view: View) -> Iterator[str]:
    """The nodes in turn."""
    return cycle(node.id for node in view.usable)


def with_standbys(topology: TopologyView, label: str = ZONE, passive: bool = False) -> TopologyView:
    """The same, in which each partition is to have a standby in another domain."""
    every = frozenset(p.id for p in topology.partitions)
    copies = every if passive else frozenset[str]()
    return replace(topology, standbys=every, passive=copies, domains=dict.fromkeys(every, label))


def truly_lost(w: Zones) -> dict[str, int]:
    """The priority that each zone would take, without what has a standby in another one."""
    zone = {n.id: n.labels[ZONE] for n in w.nodes.values()}
    assert w.desired is not None
    standbys = w.desired.standbys
    at = {p: zone[n] for p, n in assignment(w).items() if p not in standbys or zone[standbys[p]] == zone[n]}
    return lost_with([Needs(q.priority, q.partitions) for q in w.topology.queries], at)


@pytest.mark.parametrize("passive", [False, True], ids=["active", "passive"])
def test_standbys_that_have_no_room_are_no_reason_to_spread_a_query(passive: bool) -> None:
    """Nodes are full to the cap: nothing is lost less than if nobody had asked for standbys, in a plan neither."""
    full = chains(cpu=160)
    plain, w = running(full), running(with_standbys(full, passive=passive))
    for one in (w, plain):
        one.run(20)
    assert w.desired is not None
    assert w.desired.standbys == {}
    assert rank_of(truly_lost(w)) == rank_of(lost(plain)) < rank_of(lost(running(full, label=None)))
    for one in (w, plain):
        one.kill("n1", "n2")
        one.add("n5")
        one.add("n6")
        one.run(30)
        assert one.healthy()
    assert w.desired.standbys == {}
    assert rank_of(truly_lost(w)) == rank_of(lost(plain))


def test_at_the_first_start_partitions_with_room_for_standbys_elsewhere_may_be_anywhere() -> None:
    """All have room, so all go on in the other zone, wherever they are; with another label nobody knows that."""
    w = running(with_standbys(chains(cpu=40)))
    w.run(20)
    assert w.desired is not None
    assert len(w.desired.standbys) == 20
    assert rank_of(truly_lost(w)) == (0, 0)
    other = running(with_standbys(chains(), label="rack"))
    assert rank_of(lost(other)) == (15, 8), "as without standbys"


def test_at_the_first_start_active_standbys_count_unless_output_of_others_waits_for_theirs() -> None:
    """They are not promoted beside an operator of which a replay may differ, so a query is in one zone then, but for what
    has a passive one."""
    told = frozenset(p.id for p in chains().partitions if p.id.startswith("o0."))
    every = replace(with_standbys(chains(cpu=40)), passive=told)
    ranks = []
    for deterministic in (True, False):
        topology = replace(every, deterministic=deterministic)
        waits = frozenset[str]() if deterministic else told
        w = Zones(topology, Policy(nodes_wanted=4, failure_domain=ZONE), output_waits=waits)
        for name in ("n1", "n2", "n3", "n4"):
            w.add(name)
        w.start_driver()
        w.drive()
        view = look(w.snapshot(), w.policy)
        costs = normal_costs(view)
        room = {node.id: view.policy.cap_of(node.cpu_milli) for node in view.usable}
        added = by_room(costs, costs, room)
        assert added is not None
        at = domains.at_start(view, costs, added)
        ranks.append(true_rank(view, at, placement(view, Desired(0, 0, 0, "", at))))
    assert ranks == [(0, 0), (15, 8)]


def test_at_the_first_start_nothing_is_compared_where_no_label_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(domains, "_least_lost", lambda *_: pytest.fail("there are no domains"))
    plain, every = running(label=None), frozenset(p.id for p in chains().partitions)
    w = running(replace(chains(), standbys=every), label=None)
    assert assignment(w) == assignment(plain)


def some_have_standbys(rng: random.Random) -> tuple[View, dict[str, int], dict[str, str]]:
    """A view of four nodes in two zones, of queries that share partitions of which some are to have a standby, what these
    cost, and a placement by room alone."""
    costs = {f"p.{k}": rng.randint(5, 30) * 10 for k in range(9)}
    queries = tuple(
        QueryView(f"q{k}", rng.randint(1, 9), frozenset(rng.sample(sorted(costs), rng.randint(1, 4))))
        for k in range(4)
    )
    wanted = frozenset(rng.sample(sorted(costs), 5))
    partitions = tuple(PartitionView(p, cpu_milli=cost) for p, cost in costs.items())
    topology = TopologyView("t", partitions, queries, True, wanted, domains=dict.fromkeys(wanted, ZONE))
    w = Zones(topology, Policy(nodes_wanted=4, failure_domain=ZONE))
    for name in ("n1", "n2", "n3", "n4"):
        w.add(name)
    w.start_driver()
    w.drive()
    view = look(w.snapshot(), w.policy)
    room = {node.id: view.policy.cap_of(node.cpu_milli) for node in view.usable}
    added = by_room(costs, costs, room)
    assert added is not None
    return view, costs, added


def true_rank(view: View, at: Mapping[str, str], standbys: Mapping[str, str]) -> Rank:
    zone = {node.id: node.labels[ZONE] for node in view.usable}
    lost = {p: zone[n] for p, n in at.items() if p not in standbys or zone[standbys[p]] == zone[n]}
    return rank_of(lost_with(needs(view), lost))


def test_at_the_first_start_those_count_for_which_there_is_room() -> None:
    """Never is more lost than with either guess, that all will have standbys in the other zone and that none will; and with
    each of them more is in some of these cases."""
    worse = [0, 0]
    for seed in range(60):
        view, costs, added = some_have_standbys(random.Random(seed))
        wanted = frozenset(view.snapshot.topology.standbys)

        def rank(at: Mapping[str, str], view: View = view) -> Rank:
            return true_rank(view, at, placement(view, Desired(0, 0, 0, "", at)))

        found = rank(domains.at_start(view, costs, added))
        for k, guess in enumerate((frozenset[str](), wanted)):
            guessed = rank(domains._placed(view, costs, {}, added, guess))
            assert found <= guessed
            worse[k] += found < guessed
    assert all(worse)


def test_in_a_plan_those_count_that_are_there_and_stay_beside_it() -> None:
    """The same of standbys that are there, of which some have no room beside what is placed."""
    worse = [0, 0]
    for seed in range(200):
        rng = random.Random(seed)
        view, costs, added = some_have_standbys(rng)
        held = {p: added[p] for p in sorted(costs)[:6]}
        nodes = [node.id for node in view.usable]
        wanted = sorted(view.snapshot.topology.standbys & held.keys())
        standbys = {p: rng.choice([n for n in nodes if n != held[p]]) for p in wanted}
        desired = Desired(1, 1, 0, "1", held, standbys=standbys)
        view = look(replace(view.snapshot, desired=desired), view.policy)
        rest = {p: n for p, n in added.items() if p not in held}

        def rank(one: Mapping[str, str], view: View = view, costs: Mapping[str, int] = costs) -> Rank:
            desired = view.snapshot.desired
            assert desired is not None
            at = {**desired.assignment, **one}
            return true_rank(view, at, staying(view, costs, at, desired.standbys, set(one.values())))

        found = rank(regarding(view, costs, held, rest))
        zone = {node.id: node.labels[ZONE] for node in view.usable}
        there = frozenset(p for p, n in standbys.items() if zone[n] != zone[held[p]])
        for k, guess in enumerate((frozenset[str](), there)):
            guessed = rank(domains._placed(view, costs, held, rest, guess))
            assert found <= guessed or k == 0
            worse[k] += found < guessed
    assert all(worse)


@pytest.mark.parametrize(
    ("standby", "zone", "deterministic", "waits", "passive"),
    [
        pytest.param("n2#1", "b", True, "", False, id="apart"),
        pytest.param("n3#1", "a", True, "", False, id="near"),
        pytest.param(None, "a", True, "", False, id="none"),
        pytest.param("n2#1", "b", False, "runs", True, id="apart-and-output-waits"),
        pytest.param("n2#1", "b", False, "other", True, id="apart-and-passive-beside-output-that-waits"),
        pytest.param("n2#1", "a", False, "other", False, id="apart-and-active-beside-output-that-waits"),
        pytest.param("n2#1", "a", False, "", True, id="apart-and-everything-goes-back"),
    ],
)
def test_where_a_query_runs_is_a_reason_while_it_would_be_lost_there(
    standby: str | None, zone: str, deterministic: bool, waits: str, passive: bool
) -> None:
    """`x` and `runs` are one query, `x` and `other` one of less priority.  `runs` is in zone a, as n1 and n3 are.  `waits`:
    whose output waits for its standby, as a replay may differ.  An active standby is not promoted beside that, also where
    it was placed before."""
    partitions = tuple(PartitionView(p, cpu_milli=100) for p in ("x", "runs", "other"))
    queries = (
        QueryView("runs", 5, frozenset({"x", "runs"})),
        QueryView("other", 1, frozenset({"x", "other"})),
    )
    w = Zones(
        with_standbys(TopologyView("t", partitions, queries, deterministic), passive=passive),
        Policy(nodes_wanted=3, failure_domain=ZONE),
        output_waits=frozenset({waits} - {""}),
    )
    for name in ("n1", "n2", "n3"):
        w.add(name)
    w.start_driver()
    w.drive()
    held = {"runs": "n1#1", "other": "n2#1"}
    standbys = {} if standby is None else {"runs": standby}
    desired = Desired(1, 1, 0, "1", held, standbys=standbys)
    view = look(replace(w.snapshot(), desired=desired), w.policy)
    costs = {p.id: p.cpu_milli for p in partitions}
    found = regarding(view, costs, held, {"x": "n2#1"})
    assert view.alive[found["x"]].labels[ZONE] == zone


def test_a_node_is_emptied_into_its_own_zone_where_there_is_room() -> None:
    w = running(chains(cpu=60), nodes=4)
    before = rank_of(lost(w))
    w.empty("n1")
    w.run(40)
    assert "n1#1" not in assignment(w).values()
    assert rank_of(lost(w)) <= before
    assert w.healthy()


@pytest.mark.parametrize("seed", range(6))
def test_random_losses_end_well(seed: int) -> None:
    """The world holds every decision to its invariants meanwhile."""
    rng = random.Random(seed)
    w = running(chains(queries=rng.choice([3, 5]), cpu=rng.choice([60, 110, 150])), nodes=4)
    for k in range(5):
        w.run(rng.choice([0.3, 1.0, 4.0, 12.0]))
        kind = rng.random()
        if kind < 0.6 and w.names():
            w.kill(*rng.sample(w.names(), min(len(w.names()), rng.choice([1, 2, 2]))))
        elif kind < 0.8:
            w.add(f"m{10 + k}")
        elif w.names():
            w.empty(rng.choice(w.names()))
    for k in range(6):
        w.add(f"z{20 + k}")
    w.run(90)
    assert w.healthy()


def test_what_is_lost_is_of_queries_that_are_whole_and_not_of_partitions_that_are_spared() -> None:
    zones = {"n1": "a", "n2": "b", "n3": "c"}
    queries = [Needs(5, {"s", "x"}), Needs(3, {"s", "y"})]
    partitions, at = ("s", "x", "y"), {"s": "n1", "x": "n2", "y": "n2"}
    assert losses(zones, queries, partitions, at) == Losses(8, {"a": 8, "b": 8, "c": 0})
    assert losses(zones, queries, partitions, at, {"x"}) == Losses(8, {"a": 8, "b": 3, "c": 0})
    del at["x"]
    found = losses(zones, queries, partitions, at)
    assert (found, found.mean, found.worst) == (Losses(3, {"a": 3, "b": 3, "c": 0}), 2, 3)


def test_a_node_without_the_label_is_a_domain_of_its_own() -> None:
    w = running()
    bare = Node("bare", 1, 1000)
    view = look(w.snapshot(), w.policy)
    found = domains_of(ZONE, (*view.usable, bare))
    assert sorted(set(found.values())) == ["node bare#1", f"{ZONE}=a", f"{ZONE}=b"]
