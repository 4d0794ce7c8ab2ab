"""Which partitions of a set are down: in order, counted, the first few; with sets that share, and with others."""

from __future__ import annotations

import pytest

from reprise.algorithms import UnionSet
from reprise.scheduler.missing import Missing

ORDER = {f"p.{k}": k for k in range(10)}
SHARED = frozenset({"p.1", "p.4", "p.7"})


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (UnionSet(SHARED, ["p.9"]), ("p.1", "p.7", "p.9")),
        (UnionSet(SHARED, ["p.2", "p.5"]), ("p.1", "p.2", "p.7")),
        (UnionSet(SHARED), ("p.1", "p.7")),
        (UnionSet(frozenset(), ["p.2"]), ("p.2",)),
        (frozenset({"p.9", "p.0", "p.1"}), ("p.1", "p.9")),
        (frozenset({"p.0"}), ()),
    ],
)
def test_what_is_down_is_in_topological_order(
    partitions: frozenset[str] | UnionSet, expected: tuple[str, ...]
) -> None:
    missing = Missing(ORDER, {"p.1", "p.2", "p.7", "p.9"})
    for _ in range(2):  # the second time from what is remembered of the shared ones
        assert missing(partitions) == expected
        assert missing.count(partitions) == len(expected)
        assert [missing.first(partitions, most) for most in (0, 1, 2, 9)] == [
            expected[:most] for most in (0, 1, 2, 9)
        ]


def test_sets_that_share_nothing_are_not_mixed_up() -> None:
    missing = Missing(ORDER, frozenset(ORDER))
    for k in range(9):  # each set is gone when the next one is made
        assert missing(UnionSet(frozenset({f"p.{k}"}), ["p.9"])) == (f"p.{k}", "p.9")
