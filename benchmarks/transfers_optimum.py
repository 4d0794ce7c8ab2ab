"""The best schedule of a few writes on the network of Peace, by integer programming: how far from it Peace is.

For each request and step, a variable says how many of its chunks take each pipeline, that is, each sequence of servers
that the templates allow.  Between two servers the way is unique (a tree of switches), so a pipeline takes the same links
always.  For small instances only: there are as many pipelines as sequences of servers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

import highspy
import pulp

from reprise.algorithms.peace import Edge, Network, Request, Template, Vertex, schedule, shortest_path

Uses = Mapping[Edge, int]


def steps_of_peace(
    requests: Sequence[Request], network: Network, templates: Sequence[Template], rng: random.Random
) -> tuple[int, ...]:
    """At the end of which step each request is whole, with full capacity at the start of each; requests by position."""
    left = {request.writer: request for request in requests}
    if len(left) < len(requests):
        raise ValueError("a node writes one snapshot at a time")
    ends: dict[str, int] = {}
    step = 0
    while left:
        step += 1
        done = schedule(tuple(left.values()), network, templates, rng)
        if not done.plan:
            raise ValueError(f"nothing fits: {tuple(left.values())}")
        rest = {request.writer: request for request in done.left}
        ends |= dict.fromkeys(left.keys() - rest.keys(), step)
        left = rest
    return tuple(ends[request.writer] for request in requests)


def optimum(
    requests: Sequence[Request], network: Network, templates: Sequence[Template], most: int
) -> tuple[int, int]:
    """The fewest steps, and the least sum over requests of the step in which each is whole (two different schedules, maybe).

    `most`: steps that are enough, by any schedule.
    """
    ways = [_pipelines(network, request, templates) for request in requests]
    fewest = next(
        steps
        for steps in range(1, most + 1)
        if _solve(requests, network, ways, steps, ends=False) is not None
    )
    least = _solve(requests, network, ways, most, ends=True)
    assert least is not None
    return fewest, least


def _pipelines(network: Network, request: Request, templates: Sequence[Template]) -> list[Uses]:
    """The links of every sequence of servers that a chunk of `request` may take, each with how often it is used."""

    @cache
    def way(sender: str, receiver: str) -> tuple[Edge, ...]:
        others = frozenset(network.rack) - {receiver}
        path = shortest_path(network, sender, Template.ANY, others, random.Random(0))
        assert path is not None
        return tuple(pairwise(path))

    def longer(servers: tuple[str, ...]) -> list[tuple[str, ...]]:
        if len(servers) > request.replicas:
            return [servers]
        template = templates[len(servers) - 1]
        allowed = [s for s in network.rack if s not in servers and template.allows(network, servers[-1], s)]
        return [found for server in allowed for found in longer((*servers, server))]

    return [
        Counter(edge for a, b in pairwise(servers) for edge in way(a, b))
        for servers in longer((request.writer,))
    ]


def _solve(
    requests: Sequence[Request], network: Network, ways: Sequence[Sequence[Uses]], steps: int, ends: bool
) -> int | None:
    """With `ends` the least sum of ends within `steps`, else 0; None: not everything can be written in so many steps."""
    problem = pulp.LpProblem("transfers", pulp.LpMinimize)
    chunks = {
        (t, q, k): problem.add_variable(f"c_{t}_{q}_{k}", 0, request.chunks, pulp.LpInteger)
        for t in range(steps)
        for q, request in enumerate(requests)
        for k in range(len(ways[q]))
    }
    open_after = {
        (t, q): problem.add_variable(f"o_{t}_{q}", 0, 1, pulp.LpBinary)
        for t in range(steps)
        for q in range(len(requests))
    }
    problem += pulp.lpSum(open_after.values()) if ends else 0
    for q, request in enumerate(requests):
        for t in range(steps):
            by_then = pulp.lpSum(chunks[s, q, k] for s in range(t + 1) for k in range(len(ways[q])))
            last = t == steps - 1
            problem += by_then >= request.chunks * (1 if last else 1 - open_after[t, q])
    for t in range(steps):
        for edge, capacity in _capacities(network).items():
            used = [
                uses[edge] * chunks[t, q, k]
                for q in range(len(requests))
                for k, uses in enumerate(ways[q])
                if edge in uses
            ]
            if used:
                problem += pulp.lpSum(used) <= capacity
    solver = pulp.HiGHS(msg=False, threads=1)
    solver.createAndConfigureSolver(problem)
    solver.buildSolverModel(problem)
    highs: highspy.Highs = problem.solverModel
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return round(highs.getInfo().objective_function_value) + len(requests) if ends else 0


def _capacities(network: Network) -> dict[tuple[Vertex, Vertex], int]:
    return {(here, there): link.capacity for here, to in network.links.items() for there, link in to.items()}
