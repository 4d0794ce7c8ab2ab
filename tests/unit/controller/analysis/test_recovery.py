"""How long a query would be down if a node were lost now, taken from the status document alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.controller.analysis.recovery import needed_by, recovery_of
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.model import AimView, OverheadView, PartitionView, QueryView
from tests.support import oncall

QUERY = "count.1"
FIXED = OverheadView(detection_s=3.0, plan_s=0.5, install_s=1.5, assumed=("plan",))


def made(
    load: dict[str, tuple[float, float]], aims: dict[str, AimView] | None = None, **query: object
) -> tuple[StatusDocument, QueryView]:
    """A steady topology; `load`: seconds that each partition loads and replays, of those of which it is known."""
    found = document(oncall.TOPOLOGY, oncall.steady())

    def of(p: PartitionView) -> PartitionView:
        load_s, replay_s = load.get(p.id, (None, None))
        named = ("load",) if p.id == QUERY and load_s is not None else ()
        return replace(
            p, load_s=load_s, replay_s=replay_s, replay_rows=None if replay_s is None else 9, state_bytes=7, assumed=named,
            aim=(aims or {}).get(p.id),
        )  # fmt: skip

    own = next(q for q in found.queries.items if q.id == QUERY)
    asked = replace(own, **{"recovery_s": 9.0, "slowest_node": "n2#1", **query})  # type: ignore[arg-type]
    return replace(found, partitions=tuple(map(of, found.partitions)), overhead=FIXED), asked


LOAD = {"tweets.0": (0.0, 0.25), "count.1": (1.0, 2.0), "count.2": (0.5, 0.5)}


def test_all_that_is_lost_with_the_slowest_node_is_reckoned_together() -> None:
    found = recovery_of(*made(LOAD))
    assert found is not None
    assert (found.seconds, found.node, found.partitions_there) == (9.0, "n2#1", 2)
    assert (found.detection_s, found.plan_s, found.install_s) == (3.0, 0.5, 1.5)
    assert (found.load_s, found.replay_s) == (1.5, 2.5), "those of other queries are read, too"
    assert found.assumed == ("plan", "load")


def test_the_partitions_are_those_that_the_query_needs_the_slowest_first() -> None:
    found = recovery_of(*made(LOAD))
    assert found is not None
    assert [(p.partition, p.node, p.seconds, p.rows) for p in found.partitions] == [
        ("count.1", "n2#1", 8.0, 9), ("tweets.0", "n1#1", 5.25, 9),
    ]  # fmt: skip


@pytest.mark.parametrize("unknown", [{"recovery_s": None}, {"slowest_node": None}])
def test_what_is_not_known_of_one_partition_is_known_of_none(unknown: dict[str, object]) -> None:
    assert recovery_of(*made(LOAD, **unknown)) is None
    found, query = made(LOAD)
    assert recovery_of(replace(found, overhead=None), query) is None


def why(objective_s: float, aims: dict[str, AimView] | None = None, held: bool | None = False) -> str:
    found = recovery_of(*made(LOAD, aims, objective_s=objective_s, held=held))
    assert found is not None
    assert (found.objective_s, found.held) == (objective_s, held)
    return found.why


def test_one_that_is_held_or_of_which_nobody_knows_needs_no_reason() -> None:
    assert why(20.0, held=True) == why(20.0, held=None) == ""


def test_what_no_storing_could_shorten_is_said_first() -> None:
    assert why(5.0) == "noticing the loss, planning and installing alone take 5.0 s"


def test_partitions_that_are_not_stored_slot_by_slot_are_named() -> None:
    said = why(6.0, {"count.1": AimView(1.0, 1, 1, 0.5)})
    assert said.startswith("1.0 s are of partitions about which it can do nothing") and "(count.2)" in said


def test_an_aim_that_is_less_than_the_least_is_named() -> None:
    tight, wide = AimView(1.0, 1, 1, 2.0), AimView(3.0, 1, 1, 2.0)
    assert "takes longer (count.1)" in why(8.0, {"count.1": tight, "count.2": wide})
    assert why(8.0, {"count.1": wide, "count.2": wide}).startswith(
        "slots are not stored as often as that needs"
    )


def test_a_query_needs_its_own_partition_and_all_of_what_it_reads() -> None:
    found, _ = made({})
    assert [p.id for p in needed_by(found, QUERY)] == ["tweets.0", "count.1"]
    assert needed_by(found, "count.9") == [p for p in found.partitions if p.id == "tweets.0"]
