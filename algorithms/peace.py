"""Peace: which chunks of a snapshot are written in the next step, and to which servers, on a modelled network.

Source: Y. Kwon, M. Balazinska, A. Greenberg, "Fault-tolerant Stream Processing using a Distributed, Replicated File System",
section 5, Algorithm 1 (lines are named below) and figure 5 (the network).  Nothing in the product calls it: an object store
places its replicas itself.  It is what `benchmarks/transfers.py` simulates beside other ways to write.

The network is a directed graph.  A server i has vertices (snd, i), (up, i), (dn, i) and (rcv, i), a switch u has (sw, u):

    snd -> up -> sw of its switch -> dn -> rcv,   and sw -> sw in both directions where two switches are connected

Physical links (snd to up, dn to rcv, switch to switch) cost 1, a switch's inside (up to sw, sw to dn) costs 0.  Each edge
has a capacity, in chunks a step: a step takes about as long as writing one chunk and all of its replicas.

It is neither an optimum nor a bound: chunks are placed one after the other, each replica on a shortest path of what is left.
The example of section 5 needs two steps where one would do (`tests/unit/algorithms/test_peace.py`).

Where it departs from the text, or reads it in one of several ways:

- Line 17, residual graph: a path's edges lose one unit, and no reverse edges come for it.  The textbook's reverse edges
  let a later path undo a part of an earlier one; between two switches that would exchange the destinations of two chunks,
  so that both break the rule about racks.
- Line 14, `create_graph`: the extra vertices s and d are not made; a search from (snd, z) that ends at the first (rcv, j)
  that satisfies the constraint finds the same path, as the edge from s has capacity 1 and those to d have cost 0 and no
  limit.
- Line 15, `create_constraint`: a template is relative to the node that sends the replica, and all servers of the path so
  far, the writer among them, are excluded (section 6.2, note 6: never on the local disk).  The template `same node` is
  left out.
- Line 22 notes how many chunks are left, as in the text (k has been counted down), and a request without chunks is no
  request.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from reprise.algorithms.errors import InstanceError


class Part(StrEnum):
    """What a vertex of the network is."""

    SND = "snd"
    UP = "up"
    SW = "sw"
    DN = "dn"
    RCV = "rcv"


class Vertex(NamedTuple):
    """A part of a server or, with `Part.SW`, a switch."""

    part: Part
    name: str


Edge = tuple[Vertex, Vertex]


@dataclass(frozen=True, slots=True)
class Link:
    """An edge's cost of one chunk, and how many chunks may still pass it in this step."""

    cost: int
    capacity: int


@dataclass(frozen=True)
class Network:
    """Servers by the switch of their rack, and the links between all vertices with what is left of their capacity."""

    rack: Mapping[str, str]
    links: Mapping[Vertex, Mapping[Vertex, Link]]

    def without(self, path: Sequence[Vertex]) -> Network:
        """The same after one chunk has taken `path`; InstanceError: an edge of it has no capacity left."""
        changed = dict(self.links)
        for here, there in pairwise(path):
            link = changed[here][there]
            if not link.capacity:
                raise InstanceError(f"links[{here}][{there}]", "it has no capacity left")
            changed[here] = {**changed[here], there: replace(link, capacity=link.capacity - 1)}
        return Network(self.rack, changed)


class Template(StrEnum):
    """Where a replica goes, seen from the node that sends it."""

    SAME_RACK = "same rack"
    OTHER_RACK = "other rack"
    ANY = "any"

    def allows(self, network: Network, sender: str, receiver: str) -> bool:
        """Whether `receiver` may take the replica that `sender` sends on."""
        if self is Template.ANY:
            return True
        return (network.rack[sender] == network.rack[receiver]) == (self is Template.SAME_RACK)


TWO_RACKS = (Template.SAME_RACK, Template.OTHER_RACK, Template.SAME_RACK)
"""Templates by replica: the first two are those of the example in section 5, the third stays where the second went."""


@dataclass(frozen=True, slots=True)
class Request:
    """The triple (w, r, k): node `writer` wants to write `chunks` chunks, each to `replicas` servers."""

    writer: str
    replicas: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One chunk's way: from the writer to the first replica, from there to the second, and so on."""

    servers: tuple[str, ...]
    """The writer, then a server for each replica (p of Algorithm 1)."""
    paths: tuple[tuple[Vertex, ...], ...]
    """Of each replica, all vertices from the sender's `snd` to the receiver's `rcv`."""


class Step(NamedTuple):
    """What is written in one step: (P, G, W') of line 31."""

    plan: tuple[Pipeline, ...]
    network: Network
    left: tuple[Request, ...]


def two_racks(
    racks: Mapping[str, Sequence[str]],
    client: int = 2,
    node: int = 2,
    between: int = 2,
    inside: int | None = None,
) -> Network:
    """Servers by switch, every switch connected to every other.  Capacities in chunks a step: `client` from a server's snd
    to up, `node` from dn to rcv (both 2 in section 6.2), `between` of two switches in each direction, and `inside` a
    switch, of up to sw and sw to dn; None: as much as can come.
    """
    links: dict[Vertex, dict[Vertex, Link]] = {}

    def link(here: Vertex, there: Vertex, cost: int, capacity: int) -> None:
        links.setdefault(here, {})[there] = Link(cost, capacity)

    for switch, servers in racks.items():
        sw = Vertex(Part.SW, switch)
        for server in servers:
            up, dn = Vertex(Part.UP, server), Vertex(Part.DN, server)
            link(Vertex(Part.SND, server), up, 1, client)
            link(up, sw, 0, client if inside is None else inside)
            link(sw, dn, 0, node if inside is None else inside)
            link(dn, Vertex(Part.RCV, server), 1, node)
        for other in racks:
            if other != switch:
                link(sw, Vertex(Part.SW, other), 1, between)
    return Network({server: switch for switch, servers in racks.items() for server in servers}, links)


def schedule(
    requests: Sequence[Request],
    network: Network,
    templates: Sequence[Template] = TWO_RACKS,
    rng: random.Random | None = None,
) -> Step:
    """Algorithm 1: what of `requests` (W) is written in the step that begins with `network` (G) as it is.

    `templates` (C): one for each replica.  `rng` chooses among paths of equal cost; None: `random.Random(0)`.  What does not
    fit is in `left` (W'), in the same order, to come first in the next step.  InstanceError: a writer that is no server,
    more replicas than templates, or no replica.
    """
    rng = rng or random.Random(0)
    plan: list[Pipeline] = []  # line 1
    left: list[Request] = []  # line 2
    for request in requests:  # line 4
        _check(request, network, templates)
        for done in range(request.chunks):  # line 6
            found = place(request, network, templates, rng)  # lines 7 to 25
            if found is None:
                left.append(replace(request, chunks=request.chunks - done))  # line 22
                break  # line 23
            pipeline, network = found  # line 28
            plan.append(pipeline)  # line 27; line 26 is the loop
    return Step(tuple(plan), network, tuple(left))  # line 31


def place(
    request: Request, network: Network, templates: Sequence[Template], rng: random.Random
) -> tuple[Pipeline, Network] | None:
    """Lines 7 to 25: a way for one chunk with all of its replicas and the network after it; None: there is none now."""
    residual = network  # line 10
    servers, paths = [request.writer], []  # line 9
    for template in templates[: request.replicas]:  # line 12
        sender = servers[-1]  # lines 8 and 19
        path = shortest_path(residual, sender, template, frozenset(servers), rng)  # lines 13 to 15
        if path is None:  # line 16
            return None  # line 21
        residual = residual.without(path)  # line 17
        paths.append(path)
        servers.append(path[-1].name)  # lines 18 to 20
    return Pipeline(tuple(servers), tuple(paths)), residual


def shortest_path(
    network: Network, sender: str, template: Template, excluded: frozenset[str], rng: random.Random
) -> tuple[Vertex, ...] | None:
    """The cheapest path with capacity from `sender` to a server that `template` allows and that is not excluded.

    Edges out of a vertex are taken in random order, so that destinations of equal cost take turns.
    """
    start = Vertex(Part.SND, sender)
    heap: list[tuple[int, int, Vertex, Vertex | None]] = [(0, 0, start, None)]
    came: dict[Vertex, Vertex | None] = {}
    pushed = 0
    while heap:
        cost, _, here, before = heapq.heappop(heap)
        if here in came:
            continue
        came[here] = before
        if (
            here.part is Part.RCV
            and here.name not in excluded
            and template.allows(network, sender, here.name)
        ):
            return _back(here, came)
        outgoing = [
            (there, link.cost) for there, link in network.links.get(here, {}).items() if link.capacity
        ]
        rng.shuffle(outgoing)
        for there, more in outgoing:
            pushed += 1
            heapq.heappush(heap, (cost + more, pushed, there, here))
    return None


def _back(end: Vertex, came: Mapping[Vertex, Vertex | None]) -> tuple[Vertex, ...]:
    path = [end]
    while (before := came[path[-1]]) is not None:
        path.append(before)
    return tuple(reversed(path))


def _check(request: Request, network: Network, templates: Sequence[Template]) -> None:
    if request.writer not in network.rack:
        raise InstanceError("writer", f"{request.writer} is no server of the network")
    if not 1 <= request.replicas <= len(templates):
        raise InstanceError("replicas", f"{request.replicas} with {len(templates)} templates")
