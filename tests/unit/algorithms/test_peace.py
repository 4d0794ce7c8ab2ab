"""Peace: the example in its paper, what every step keeps to, and how far from the optimum it is."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.transfers_optimum import optimum, steps_of_peace
from reprise.algorithms.errors import InstanceError
from reprise.algorithms.peace import (
    TWO_RACKS,
    Network,
    Part,
    Request,
    Template,
    Vertex,
    schedule,
    shortest_path,
    two_racks,
)

FIGURE_5 = {"sw1": ("1.1", "1.2"), "sw2": ("2.1", "2.2")}
BOTH = (Request("1.1", 2, 1), Request("2.1", 2, 1))


def network_of_figure_5() -> Network:
    return two_racks(FIGURE_5, client=1, node=1, between=1)


def seed_that_chooses(server: str) -> random.Random:
    """A generator with which the second replica of the first request goes to `server`."""
    for seed in range(50):
        chosen = schedule(BOTH[:1], network_of_figure_5(), rng=random.Random(seed)).plan[0].servers
        if chosen[-1] == server:
            return random.Random(seed)
    raise AssertionError(f"never chosen: {server}")


def test_example_of_section_5() -> None:
    """Capacity 1 everywhere, two writers, two replicas: the second one finds its rack's other server taken and waits."""
    step = schedule(BOTH, network_of_figure_5(), rng=seed_that_chooses("2.2"))
    assert [pipeline.servers for pipeline in step.plan] == [("1.1", "1.2", "2.2")]
    assert step.left == (Request("2.1", 2, 1),)
    down = step.network.links[Vertex(Part.SW, "sw2")][Vertex(Part.DN, "2.2")]
    assert down.capacity == 0  # "because the link is full"
    after = schedule(step.left, network_of_figure_5())
    assert len(after.plan) == 1
    assert not after.left


def test_example_could_be_written_in_one_step() -> None:
    assert optimum(BOTH, network_of_figure_5(), TWO_RACKS, 2) == (1, 2)
    lucky = schedule(BOTH, network_of_figure_5(), rng=seed_that_chooses("2.1"))
    assert len(lucky.plan) == 2  # the other server of rack 2 takes the second replica, and both fit


def test_cost_counts_physical_links_alone() -> None:
    path = shortest_path(network_of_figure_5(), "1.1", Template.OTHER_RACK, frozenset(), random.Random(0))
    assert path is not None
    assert [v.part for v in path] == [Part.SND, Part.UP, Part.SW, Part.SW, Part.DN, Part.RCV]
    near = shortest_path(network_of_figure_5(), "1.1", Template.ANY, frozenset({"1.1"}), random.Random(0))
    assert near is not None
    assert near[-1] == Vertex(Part.RCV, "1.2")  # cost 2; the other rack costs 3


def test_equal_destinations_take_turns() -> None:
    network = two_racks({"sw1": ("a", "b", "c", "d"), "sw2": ("e",)})
    rng = random.Random(1)
    chosen = Counter(schedule([Request("a", 1, 1)], network, rng=rng).plan[0].servers[-1] for _ in range(300))
    assert chosen.keys() == {"b", "c", "d"}
    assert min(chosen.values()) > 60


@pytest.mark.parametrize("seed", range(12))
def test_step_keeps_capacities_racks_and_whole_chunks(seed: int) -> None:
    rng = random.Random(seed)
    racks = {f"sw{u}": tuple(f"{u}.{k}" for k in range(rng.randint(2, 4))) for u in range(rng.randint(2, 3))}
    network = two_racks(racks, rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3))
    writers = rng.sample(sorted(network.rack), 3)
    requests = [Request(writer, rng.randint(1, 3), rng.randint(1, 4)) for writer in writers]
    step = schedule(requests, network, rng=rng)
    used = Counter(edge for pipeline in step.plan for path in pipeline.paths for edge in pairwise(path))
    for here, to in network.links.items():
        for there, link in to.items():
            assert step.network.links[here][there].capacity == link.capacity - used[here, there] >= 0
    for pipeline in step.plan:
        assert len(set(pipeline.servers)) == len(pipeline.servers)
        for sender, receiver, path, template in zip(
            pipeline.servers, pipeline.servers[1:], pipeline.paths, TWO_RACKS, strict=False
        ):
            assert template.allows(network, sender, receiver)
            assert (path[0], path[-1]) == (Vertex(Part.SND, sender), Vertex(Part.RCV, receiver))
    written = Counter(pipeline.servers[0] for pipeline in step.plan)
    left = {request.writer: request.chunks for request in step.left}
    for request in requests:
        assert written[request.writer] + left.get(request.writer, 0) == request.chunks


def test_request_that_can_never_fit_stays_left() -> None:
    alone = two_racks({"sw1": ("a",), "sw2": ("b", "c")})
    step = schedule([Request("a", 1, 2), Request("b", 1, 1)], alone)
    assert step.left == (Request("a", 1, 2),)  # nobody else is in its rack
    assert [pipeline.servers for pipeline in step.plan] == [("b", "c")]


@pytest.mark.parametrize(
    ("request_", "field"),
    [(Request("x", 1, 1), "writer"), (Request("1.1", 4, 1), "replicas"), (Request("1.1", 0, 1), "replicas")],
)
def test_bad_request_is_named(request_: Request, field: str) -> None:
    with pytest.raises(InstanceError) as raised:
        schedule([request_], network_of_figure_5())
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("capacities", "expected"),
    [((1, 2, 2), 3), ((2, 1, 2), 3), ((2, 2, 1), 3), ((2, 2, 2), 2)],
    ids=["client", "node", "between", "two of each"],
)
def test_optimum_keeps_to_each_capacity(capacities: tuple[int, int, int], expected: int) -> None:
    """Three chunks of one writer pass its own link, the only other server of its rack, and the link between the racks."""
    network = two_racks(FIGURE_5, *capacities)
    assert optimum([Request("1.1", 2, 3)], network, TWO_RACKS, 3) == (expected, expected)


@pytest.mark.parametrize("seed", range(8))
def test_never_better_than_the_optimum(seed: int) -> None:
    """The optimum is sought among as many steps as there are chunks, which are always enough, and not up to Peace's."""
    rng = random.Random(seed)
    network = two_racks(FIGURE_5, rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2))
    writers = rng.sample(sorted(network.rack), rng.randint(2, 3))
    requests = [Request(writer, 2, rng.randint(1, 2)) for writer in writers]
    ends = steps_of_peace(requests, network, TWO_RACKS, rng)
    fewest, least = optimum(requests, network, TWO_RACKS, sum(request.chunks for request in requests))
    assert max(ends) >= fewest
    assert sum(ends) >= least
