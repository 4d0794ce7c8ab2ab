"""What the loss of a failure domain takes."""

from __future__ import annotations

import pytest

from benchmarks.planners_domains import EXAMPLE, measure
from reprise.controller.topology_view import policy_of, view_of
from reprise.spark_jobs.topology import load_topology


@pytest.mark.parametrize("domains", [2, 3])
def test_queries_that_are_together_lose_less_with_a_domain_and_nodes_are_as_full(domains: int) -> None:
    resource = load_topology(EXAMPLE)
    even, by_domain = measure(view_of(resource), policy_of(resource, 1.0, 0.0), domains)
    assert by_domain.mean < 0.85 * even.mean
    assert by_domain.worst <= even.worst
    assert by_domain.mean >= by_domain.least == 1 / domains
    assert by_domain.fullest <= 1.2 * by_domain.mean_load + 1e-9 or by_domain.fullest <= even.fullest
    assert by_domain.mean_load == pytest.approx(even.mean_load)
