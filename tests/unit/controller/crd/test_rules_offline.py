"""What the API server refuses in a topology, `reprise validate` refuses too, and what it takes, runs."""

from __future__ import annotations

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import check, expand, from_object
from reprise.spark_jobs.topology.binding import unbound
from tests.kubernetes.rule_cases import GOOD, MISTAKES, Case


@pytest.mark.parametrize("case", [c for c in MISTAKES if c.also_offline], ids=lambda c: c.name)
def test_a_mistake_is_refused_offline(case: Case) -> None:
    with pytest.raises(SpecError):
        check(from_object(case.new))


@pytest.mark.parametrize("case", GOOD, ids=lambda c: c.name)
def test_what_is_good_there_is_good_here(case: Case) -> None:
    resource = from_object(case.new)
    check(resource)
    assert list(unbound(resource)) == []
    assert expand(resource).queries
