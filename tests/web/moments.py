"""Topologies at a moment of their life, as observations: made by the real scheduler over a driver in virtual time.

So plans, reasons, time lines and states are those that a real incident has, at any size and within milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprise.algorithms.cpu import milli_cpu
from reprise.controller.status import document, plain
from reprise.controller.topology_view import policy_of, view_of, with_promises
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology, expand, load_topology, override
from tests.support.recovery_simulator import World

Look = tuple[StreamTopology, Observation]

EXAMPLES = Path(__file__).parents[2] / "examples"
START = 1_790_000_000.0


class Life:
    """A topology on nodes that a test kills and adds, and how it looks to an observer."""

    def __init__(self, resource: StreamTopology, node_cpu: int | None = None) -> None:
        self.resource = resource
        cpu = node_cpu or round(resource.nodes.cpu_cores * 1000)
        self._cpu = cpu
        self.world = World(view_of(resource), policy_of(resource, 1.0, 30.0), now=START)
        for number in range(1, resource.nodes.count + 1):
            self.world.add(f"n{number}", cpu)
        self.world.start_driver()
        self.world.run(12.0)

    def kill(self, *nodes: str) -> Life:
        self.world.kill(*nodes)
        self.world.run(4.0)
        return self

    def add(self, *nodes: str) -> Life:
        for node in nodes:
            self.world.add(node, self._cpu)
        self.world.run(4.0)
        return self

    def seen(self) -> Observation:
        """Now."""
        world = self.world
        return Observation(
            time=world.now,
            connected=True,
            nodes={node.id: node for node in world.nodes.values()},
            progress=world.progress and replace(world.progress, buffers={"memory": 12_582_912, "disk": 0}),
            desired=world.desired,
            incident=world.incident,
            closed={incident.id: incident for incident in world.closed},
            plans={plan.id: plan for plan in world.plans},
        )


def topology2() -> Life:
    """15 queries on ten nodes."""
    return Life(load_topology(EXAMPLES / "topology2.yaml"))


def eight_of_ten(life: Life) -> Life:
    """Eight nodes lost at once, two come back."""
    life.kill(*(f"n{number}" for number in range(3, 11)))
    return life.add("n11", "n12")


def with_standbys() -> tuple[StreamTopology, Observation]:
    """`parser.0` has a standby in its own zone, `parser.1` one in another, `parser.2` one of which nobody can say it, and
    `parser.3` none."""
    asked = {"availability": "passive-standby", "standby": {"failureDomain": "zone"}}
    path = EXAMPLES / "topology1.yaml"
    resource = override(load_topology(path), {f"operators[parser].{name}": x for name, x in asked.items()})
    seen = Life(resource).seen()
    assert seen.desired is not None and seen.progress is not None
    own, other, unknown, *_ = sorted(seen.nodes)
    nodes = {
        node: replace(x, labels={} if node == unknown else {"zone": "b" if node == other else "a"})
        for node, x in seen.nodes.items()
    }
    near = next(n for n in nodes if n not in (own, other, unknown))
    standbys = {"parser.0": near, "parser.1": other, "parser.2": unknown}
    at = {**seen.desired.assignment, **{f"parser.{k}": own for k in range(4)}}
    desired = replace(seen.desired, assignment=at, standbys=standbys)
    progress = replace(seen.progress, standbys={"parser.0": 40})
    return resource, replace(seen, nodes=nodes, desired=desired, progress=progress)


def in_domains() -> tuple[StreamTopology, Observation]:
    """The same with the zone as failure domain of the nodes."""
    resource, seen = with_standbys()
    return override(resource, {"nodes.failureDomain": "zone"}), seen


def wide(parallelism: int) -> Life:
    """Topology 1 with so many partitions an operator, on ten nodes that they fit."""
    path = EXAMPLES / "topology1.yaml"
    names = [operator.name for operator in load_topology(path).operators]
    resource = override(
        load_topology(path),
        {f"operators[{name}].parallelism": parallelism for name in names} | {"nodes.count": 10},
    )
    needed = sum(milli_cpu(p.cpu_cores) for p in expand(resource).partitions.values())
    return Life(resource, node_cpu=needed // 7)


def of(life: Life) -> tuple[StreamTopology, Observation]:
    """What a board is shown."""
    return life.resource, life.seen()


def said(resource: StreamTopology, seen: Observation) -> Any:
    """The document of it, as JSON has it."""
    return json.loads(json.dumps(plain(document(with_promises(resource), seen))))
