"""What partitions are worth."""

from __future__ import annotations

from reprise.scheduler.worth import by_worth, worth_of
from tests.unit.scheduler.test_standby_placement import view_of


def test_a_partition_is_worth_the_most_valuable_query_that_needs_it() -> None:
    at = dict.fromkeys(["a.0", "b.0", "c.0", "d.0"], "n1")
    queries = {"low": ["a.0", "b.0"], "high": ["b.0", "c.0"]}
    view = view_of({"n1": None}, at, {"low": 2, "high": 7}, {"n1": 0}, queries=queries)
    assert worth_of(view) == {"a.0": 2, "b.0": 7, "c.0": 7, "d.0": 0}
    assert by_worth(view) == ["b.0", "c.0", "a.0", "d.0"]
