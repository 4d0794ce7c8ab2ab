"""What `reprise explain` prints of an explanation: the answer first, and no number that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from reprise.controller.analysis.explain import Capacity, Expected, Explanation, MissingPartition
from reprise.controller.cli.explain_command import explanation_page
from reprise.controller.status.incidents import MAX_MISSING
from reprise.controller.status.partition_state import PartitionState
from reprise.controller.status.query_state import Status

NEEDS = Capacity(
    needs=300,
    free=100,
    missing=200,
    enters_at=400,
    exact=True,
    competes_with=("count.2",),
    nodes_needed=1,
    node_size=500,
)
WAITS = Explanation(
    query="count.1", priority=7, state=Status.WAITING, lag=12, waits_for="It waits for room.",
    missing=(), capacity=None, expected=Expected(20.0, 65.0, "one node came in 20 s"), plan="inc-1-p1",
)  # fmt: skip


def page(found: Explanation) -> str:
    console = Console(width=160, record=True, color_system=None, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(explanation_page(found))
    return " ".join(console.export_text().split())


def lacks(count: int, **fields: Any) -> Sequence[MissingPartition]:
    return tuple(
        MissingPartition(
            f"count.{i}", PartitionState.WAITING, **{"cost": 40, "node": None, "reason": "", **fields}
        )
        for i in range(count)
    )


@pytest.mark.parametrize(
    ("expected", "text"),
    [(Expected(None, None, "x"), "unknown (x)"), (Expected(30.0, None, ""), "at least 30s"),
     (Expected(30.0, 30.0, ""), "30s ("), (Expected(20.0, 65.0, ""), "20s to 1m05s")],
)  # fmt: skip
def test_a_time_is_a_range_as_far_as_it_is_known(expected: Expected, text: str) -> None:
    assert f"back in {text}" in page(replace(WAITS, expected=expected))
    back = page(replace(WAITS, state=Status.AVAILABLE, expected=expected))
    assert ("back in" in back) is (expected.low is None), "of one that is back there is nothing to say"


@pytest.mark.parametrize(
    ("changes", "there", "absent"),
    [
        ({}, ["300m", "100m", "comes in at 400m", "missing 200m: 1 more of 500m", "count.2"], []),
        ({"free": None, "missing": None}, [], ["missing", "more of"]),
        ({"nodes_needed": None, "node_size": None}, ["missing 200m"], ["more of"]),
        ({"missing": 0}, ["1 more of 500m"], ["comes in at"]),
        ({"enters_at": None, "competes_with": ()}, ["missing 200m"], ["comes in at", "competes"]),
    ],
)
def test_capacity_is_told_as_far_as_a_plan_has_looked(
    changes: dict[str, Any], there: list[str], absent: list[str]
) -> None:
    text = page(replace(WAITS, capacity=replace(NEEDS, **changes)))
    assert [words for words in there if words not in text] == []
    assert [words for words in absent if words in text] == []


def test_nodes_that_make_it_slower_are_named() -> None:
    assert "slower n1 is, slower n2 is" in page(replace(WAITS, slower=("n1 is,", "n2 is")))


def test_missing_partitions_beyond_a_page_are_counted() -> None:
    text = page(replace(WAITS, missing=lacks(MAX_MISSING + 2, shared_with=3)))
    assert f"count.{MAX_MISSING - 1} " in text and f"count.{MAX_MISSING} " not in text
    assert "and 2 more" in text
    assert "more" not in page(replace(WAITS, missing=lacks(MAX_MISSING, shared_with=0)))
