"""What the loss of a failure domain takes, with partitions spread evenly and with those of a query together.

    python -m benchmarks.planners_domains [FILE ...] [--domains 2 3]

For each topology, its nodes in 2 and in 3 domains in turn: the priority that is lost with one domain on average and with the
worst, and with one node, as shares of all of it; and how full the fullest node is, against the mean.  "at least": what no
placement goes below, as each query is lost with some domain.  "after the first plan": the priority of the queries that are
whole again with the first plan after the loss of a domain, on average; until then it is what was not lost.  The placements
are those of a first start (`reprise.scheduler.start`), without `nodes.failureDomain` and with it, and the plans those of the
coordinator (`reprise.scheduler.simulation`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reprise.algorithms.domains import lost_with
from reprise.controller.topology_view import policy_of, view_of
from reprise.scheduler.costs import normal_costs
from reprise.scheduler.domains import needs
from reprise.scheduler.model import Desired, Node, Policy, Progress, Snapshot, TopologyView
from reprise.scheduler.precomputed import Planner
from reprise.scheduler.simulation.run import Change, run_simulation
from reprise.scheduler.situation import Situation
from reprise.scheduler.start import placed
from reprise.scheduler.view import View, look
from reprise.spark_jobs.topology import load_topology

LABEL = "domain"
EXAMPLE = Path(__file__).parents[1] / "examples" / "topology2.yaml"


@dataclass(frozen=True, slots=True)
class Row:
    """Shares of the summed priority, 0 to 1; how full nodes are as shares of a node."""

    domains: int
    placement: str
    mean: float
    worst: float
    least: float
    planned: float
    node_mean: float
    node_worst: float
    fullest: float
    mean_load: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", default=[EXAMPLE], help="topologies")
    parser.add_argument("--domains", type=int, nargs="+", default=[2, 3])
    options = parser.parse_args(arguments)
    for file in options.files:
        resource = load_topology(file)
        topology, policy = view_of(resource), policy_of(resource, 1.0, 0.0)
        rows = [row for count in options.domains for row in measure(topology, policy, count)]
        sys.stdout.write(
            f"\n{resource.name}: {len(topology.partitions)} partitions, {len(topology.queries)} queries, "
            f"{policy.nodes_wanted} nodes\n"
        )
        sys.stdout.write(table(rows))
    return 0


def measure(topology: TopologyView, policy: Policy, count: int) -> list[Row]:
    """The first start on nodes in so many domains: as without domains, and by them."""
    nodes = tuple(
        Node(f"n{k + 1}", 1, policy.node_cpu_milli, labels={LABEL: str(k % count)})
        for k in range(policy.nodes_wanted)
    )
    rows = []
    for name, label in (("spread evenly", None), ("by domain", LABEL)):
        view = started_on(topology, replace(policy, failure_domain=label), nodes)
        decision = placed(Situation(view, None, Planner(None, None)))
        assert decision is not None and decision.desired is not None
        rows.append(_row(view, count, name, decision.desired))
    return rows


def started_on(topology: TopologyView, policy: Policy, nodes: Sequence[Node]) -> View:
    """A topology that has not started, on nodes that are ready."""
    progress = Progress("1", nodes=frozenset(node.id for node in nodes))
    return look(Snapshot(0.0, topology, True, tuple(nodes), progress), policy)


def after_the_first_plan(view: View, desired: Desired, domain: str) -> int:
    """The priority of the queries that are whole with the first plan after the loss of a domain."""
    batch = 10
    running = replace(
        view.snapshot,
        desired=replace(desired, checkpoint=batch),
        checkpoints=frozenset({batch}),
        progress=Progress(
            desired.driver,
            desired.seq,
            desired.generation,
            frozenset(view.alive),
            dict.fromkeys(desired.assignment, batch),
            horizon=batch,
            checkpoint=batch,
            kept_since=batch,
        ),
    )
    lost = tuple(node.name for node in view.usable if node.labels[LABEL] == domain)
    found = run_simulation(running, view.policy, [Change(0.0, lost)])
    whole = found.placed[found.plans[0].id] if found.plans else found.available  # nothing was lost with it
    return sum(query.priority for query in view.snapshot.topology.queries if query.id in whole)


def _row(view: View, count: int, placement: str, desired: Desired) -> Row:
    at: Mapping[str, str] = desired.assignment
    queries, costs = needs(view), normal_costs(view)
    whole = sum(query.priority for query in queries)
    domain = {node.id: node.labels[LABEL] for node in view.usable}
    by_domain = dict.fromkeys(domain.values(), 0) | lost_with(queries, {p: domain[n] for p, n in at.items()})
    by_node = lost_with(queries, at)
    load = [sum(costs[p] for p, n in at.items() if n == node.id) / node.cpu_milli for node in view.usable]
    return Row(
        count,
        placement,
        sum(by_domain.values()) / count / whole,
        max(by_domain.values()) / whole,
        1 / count,
        sum(after_the_first_plan(view, desired, one) for one in by_domain) / count / whole,
        sum(by_node.values()) / len(load) / whole,
        max(by_node.values()) / whole,
        max(load),
        sum(load) / len(load),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    lines = [
        "| domains | placement | lost with one | at least | with the worst | after the first plan | with one node "
        "| with the worst node | fullest node | mean |\n",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    ]
    lines += [
        f"| {r.domains} | {r.placement} | {r.mean:.0%} | {r.least:.0%} | {r.worst:.0%} | {r.planned:.0%} "
        f"| {r.node_mean:.0%} | {r.node_worst:.0%} | {r.fullest:.0%} | {r.mean_load:.0%} |\n"
        for r in rows
    ]
    return "".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
