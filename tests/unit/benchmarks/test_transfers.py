"""The simulation of snapshot writes: rates of Table 8, what is refused, and the order that Kwon et al. report."""

from __future__ import annotations

import random

import pytest

from benchmarks import transfers
from benchmarks.transfers_simulation import Cluster, Simulation, Steps, in_steps, paper_cluster, total
from reprise.algorithms.peace import Request


@pytest.mark.parametrize(
    ("kind", "concurrent", "rate"),
    [("disk", 1, 30.0), ("disk", 2, 45.0), ("disk", 3, 42.3), ("client", 4, 102.0), ("client", 40, 105.0)],
)
def test_sums_are_those_of_table_8(kind: str, concurrent: int, rate: float) -> None:
    assert total(kind, concurrent) == pytest.approx(rate)


def test_no_resource_gives_more_than_it_has() -> None:
    rng = random.Random(2)
    simulation = Simulation(paper_cluster(), rng)
    servers = sorted(paper_cluster().rack)
    for _ in range(40):
        simulation.start(tuple(rng.sample(servers, 4)))
    simulation.next_end()
    simulation._share()
    for resource in {r for flow in simulation.flows for r in flow.passes}:
        users = [flow for flow in simulation.flows for r in flow.passes if r == resource]
        assert sum(flow.rate for flow in users) <= simulation._capacity(resource, len(users)) * (1 + 1e-9)
    for flow in simulation.flows:  # and something that it passes is used up
        full = [
            sum(f.rate for f in simulation.flows for r in f.passes if r == resource)
            >= simulation._capacity(resource, sum(r == resource for f in simulation.flows for r in f.passes))
            * (1 - 1e-9)
            for resource in flow.passes
        ]
        assert any(full)


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([Request("a", 1, 1), Request("b", 1, 2)], "nothing fits"),
        ([Request("b", 1, 1), Request("b", 1, 2)], "one snapshot at a time"),
        ([Request("b", 1, 0)], "one chunk at least"),
    ],
)
@pytest.mark.parametrize("holds", [False, True])
def test_what_can_never_be_written_is_refused(requests: list[Request], reason: str, holds: bool) -> None:
    cluster = Cluster({"sw1": ("a",), "sw2": ("b", "c")})  # nobody else is in the rack of a
    with pytest.raises(ValueError, match=reason):
        in_steps(cluster, requests, random.Random(1), Steps(holds=holds))


def test_own_writes_are_shorter_and_all_together_take_longer() -> None:
    found = transfers.point(16, 512, 2, 1, Steps())
    assert found.own < 0.75  # Kwon et al.: about half
    assert 1.0 < found.all_done < 1.4  # Kwon et al.: 1.2 and, in section 1, 1.36
    assert found.at_once.all_done == pytest.approx(55, rel=0.15)  # theirs; the model was not fitted to it
    assert found.bound < found.at_once.all_done
