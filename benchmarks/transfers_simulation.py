"""Writes of snapshots to a replicated store in virtual time: all at once, as HDFS has them, or in the steps of Peace.

What is modelled: a write is a flow of one chunk through a pipeline of servers, at one rate throughout.  Rates are max-min
fair over what the flow passes: the writer's client, the disk of each replica's server, outgoing and incoming network of
each node, and the link between the racks.  A client and a disk give in sum what they gave to that many concurrent clients
in Table 8 of Kwon et al. (between two of its counts, in proportion).  A chunk's work varies as the rate of two clients of
one node does there.  Nothing else takes time.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from statistics import fmean

from reprise.algorithms.peace import TWO_RACKS, Network, Pipeline, Request, schedule, two_racks

CHUNK_MB = 64.0
CONCURRENT = (1, 2, 4, 8, 16)
CLIENT_WRITE = (63.7, 91.3, 102.0, 104.0, 105.0)
"""MB/s of one client, summed over its concurrent writes (Table 8)."""
NODE_WRITE = (30.0, 22.5, 9.90, 6.03, 2.57)
"""MB/s of a data node for each of its concurrent clients (Table 8)."""
VARIATION = 1.32 / 22.5
"""Standard deviation of that rate with two clients, over its mean (Table 8): of the work of a chunk."""
GIGABIT = 110.0
"""MB/s: the most that any client had over its gigabit link (Table 8)."""

Resource = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Two racks of servers, `between` MB/s from one to the other in each direction."""

    racks: Mapping[str, tuple[str, ...]]
    between: float = GIGABIT

    @property
    def rack(self) -> dict[str, str]:
        return {server: switch for switch, servers in self.racks.items() for server in servers}


def paper_cluster() -> Cluster:
    """The 17 machines of section 6.2: racks of 8 and 9."""
    return Cluster({"a": tuple(f"a{k}" for k in range(8)), "b": tuple(f"b{k}" for k in range(9))})


@lru_cache(maxsize=512)
def total(kind: str, concurrent: int) -> float:
    """MB/s in sum that a client or a disk gives to so many concurrent writes."""
    sums = (
        CLIENT_WRITE
        if kind == "client"
        else [n * rate for n, rate in zip(CONCURRENT, NODE_WRITE, strict=True)]
    )
    if concurrent >= CONCURRENT[-1]:
        return sums[-1]
    at = bisect_left(CONCURRENT, concurrent)
    if CONCURRENT[at] == concurrent:
        return sums[at]
    low, high = CONCURRENT[at - 1], CONCURRENT[at]
    return sums[at - 1] + (sums[at] - sums[at - 1]) * (concurrent - low) / (high - low)


@dataclass(slots=True)
class Flow:
    """A chunk on its way: MB that are left, and what it passes."""

    servers: tuple[str, ...]
    passes: tuple[Resource, ...]
    left: float
    rate: float = 0.0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """One request: seconds from the beginning of all to its first chunk's start, and to its last chunk's end."""

    began: float
    ended: float


@dataclass(slots=True)
class Simulation:
    """Flows in virtual time, in seconds."""

    cluster: Cluster
    rng: random.Random
    now: float = 0.0
    flows: list[Flow] = field(default_factory=list)

    def start(self, servers: tuple[str, ...], step: int = 0) -> Flow:
        """Begin to write a chunk from the first of `servers` to all others, in a pipeline."""
        rack = self.cluster.rack
        passes: list[Resource] = [("client", servers[0])]
        for sender, receiver in pairwise(servers):
            passes += [("out", sender), ("in", receiver), ("disk", receiver)]
            if rack[sender] != rack[receiver]:
                passes.append(("between", rack[sender]))
        work = CHUNK_MB * max(0.5, self.rng.gauss(1.0, VARIATION))
        flow = Flow(servers, tuple(passes), work, step=step)
        self.flows.append(flow)
        return flow

    def next_end(self) -> list[Flow]:
        """Go on to the next end of a flow; the flows that end then."""
        self._share()
        seconds = min(flow.left / flow.rate for flow in self.flows)
        self.now += seconds
        for flow in self.flows:
            flow.left -= flow.rate * seconds
        ended = [flow for flow in self.flows if flow.left < 1e-9 * CHUNK_MB]
        self.flows = [flow for flow in self.flows if flow.left >= 1e-9 * CHUNK_MB]
        return ended

    def _share(self) -> None:
        """Max-min fair rates: what is tightest for its flows is divided equally, then the next of what is left."""
        users = Counter(resource for flow in self.flows for resource in flow.passes)
        left = {resource: self._capacity(resource, count) for resource, count in users.items()}
        waiting = list(self.flows)
        while waiting:
            tightest = min(users, key=lambda r: left[r] / users[r])
            share = left[tightest] / users[tightest]
            still: list[Flow] = []
            for flow in waiting:
                if tightest not in flow.passes:
                    still.append(flow)
                    continue
                flow.rate = share
                for resource in flow.passes:
                    left[resource] = max(0.0, left[resource] - share)
                    users[resource] -= 1
                    if not users[resource]:
                        del users[resource]
            waiting = still

    def _capacity(self, resource: Resource, concurrent: int) -> float:
        kind = resource[0]
        if kind in {"client", "disk"}:
            return total(kind, concurrent)
        return self.cluster.between if kind == "between" else GIGABIT


def at_once(
    cluster: Cluster, requests: Sequence[Request], rng: random.Random, threads: int = 4
) -> dict[str, Written]:
    """All writers at once, `threads` chunks each at a time, to servers drawn at random by the same templates: HDFS.

    By writer; a node has one request.
    """
    simulation = Simulation(cluster, rng)
    waiting = {request.writer: request.chunks for request in requests}
    replicas = {request.writer: request.replicas for request in requests}
    running: Counter[str] = Counter()
    ended: dict[str, float] = {}

    def start(writer: str) -> None:
        waiting[writer] -= 1
        running[writer] += 1
        simulation.start(_random_servers(cluster, writer, replicas[writer], rng))

    for request in requests:
        for _ in range(min(threads, request.chunks)):
            start(request.writer)
    while simulation.flows:
        for flow in simulation.next_end():
            writer = flow.servers[0]
            running[writer] -= 1
            if waiting[writer]:
                start(writer)
            elif not running[writer]:
                ended[writer] = simulation.now
    return {writer: Written(0.0, end) for writer, end in ended.items()}


def _random_servers(cluster: Cluster, writer: str, replicas: int, rng: random.Random) -> tuple[str, ...]:
    rack = cluster.rack
    network = Network(rack, {})
    servers = [writer]
    for template in TWO_RACKS[:replicas]:
        allowed = [s for s in rack if s not in servers and template.allows(network, servers[-1], s)]
        servers.append(rng.choice(allowed))
    return tuple(servers)


@dataclass(frozen=True, slots=True)
class Steps:
    """How Peace is run.  `ends_at`: share of a step's writes that are done when it ends.  `holds`: a write that runs on into
    the next step holds its capacity there.  `client`, `node`, `between`: capacities in chunks a step."""

    ends_at: float = 0.8
    holds: bool = False
    client: int = 2
    node: int = 2
    between: int = 5


def in_steps(
    cluster: Cluster, requests: Sequence[Request], rng: random.Random, steps: Steps = Steps()
) -> dict[str, Written]:
    """What `schedule` lets begin, step after step.  A request's write begins with its first chunk: until then its client has
    cancelled its snapshot and holds no page (section 5, end).

    A step in which nothing can begin, as writes of earlier steps hold what it would need, lasts until one of them ends.
    ValueError: two requests of one writer, one without chunks, or one that does not fit even when nothing else runs.
    """
    if len({request.writer for request in requests if request.chunks > 0}) < len(requests):
        raise ValueError("a node writes one snapshot at a time, and of one chunk at least")
    simulation = Simulation(cluster, rng)
    whole = two_racks(cluster.racks, steps.client, steps.node, steps.between)
    left = tuple(requests)
    remaining = {request.writer: request.chunks for request in requests}
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    paths: dict[int, Pipeline] = {}
    number = 0
    while remaining:
        number += 1
        network = whole
        if steps.holds:
            for flow in simulation.flows:
                for path in paths[id(flow)].paths:
                    network = network.without(path)
        plan, _, left = schedule(left, network, rng=rng)
        if not plan and not simulation.flows:
            raise ValueError(f"nothing fits: {left}")
        for pipeline in plan:
            flow = simulation.start(pipeline.servers, number)
            paths[id(flow)] = pipeline
            began.setdefault(pipeline.servers[0], simulation.now)
        done, blocked = 0, not plan
        while simulation.flows and (blocked or done < steps.ends_at * len(plan) or not left):
            blocked = False
            for flow in simulation.next_end():
                paths.pop(id(flow))
                done += flow.step == number
                writer = flow.servers[0]
                remaining[writer] -= 1
                if not remaining[writer]:
                    del remaining[writer]
                    ended[writer] = simulation.now
    return {writer: Written(began[writer], end) for writer, end in ended.items()}


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over runs, in seconds.  `own`: a request from its first chunk's start to its end; `since_asked`: from the
    beginning of all to its end; `all_done`: until the last one ends."""

    own: float
    since_asked: float
    all_done: float


def summary(runs: Sequence[Mapping[str, Written]]) -> Summary:
    """Means of the runs' means."""
    return Summary(
        fmean(fmean(w.ended - w.began for w in run.values()) for run in runs),
        fmean(fmean(w.ended for w in run.values()) for run in runs),
        fmean(max(w.ended for w in run.values()) for run in runs),
    )


def bound(cluster: Cluster, requests: Sequence[Request]) -> float:
    """No schedule ends before: all bytes with their replicas over what all disks give at their best, in seconds."""
    best = max(total("disk", n) for n in CONCURRENT)
    volume = sum(request.chunks * request.replicas for request in requests) * CHUNK_MB
    return volume / (best * len(cluster.rack))
