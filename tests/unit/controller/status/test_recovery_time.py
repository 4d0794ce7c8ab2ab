"""In how many seconds a query would be back, by the document: the node with the most to do counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.recovery_time import INSTALL_S, Aim, RestoreWork
from reprise.controller.analysis.explain import explain
from reprise.controller.cli.explain_command import MOST_TIMES
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.model import AimView
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import PartitionStats
from reprise.spark_jobs.topology import Topology, expand, load_text, override
from tests.unit.controller.cli.test_explanation_page import page
from tests.unit.controller.status.test_document import PROGRESS, TOPOLOGY, WELL

STATS = {
    "tweets.0": PartitionStats(1.0, 0, RestoreWork(100, 100.0)),
    "clean.0": PartitionStats(1.0, 4000, RestoreWork(200, 100.0, 2000.0)),
    "count.0": PartitionStats(1.0, 1000, RestoreWork(50, 100.0, 2000.0)),
    "clean.1": PartitionStats(1.0, 1000, RestoreWork(300, 100.0, 2000.0)),
    "count.1": PartitionStats(1.0, 6000, RestoreWork(0, None, 2000.0)),
}
MEASURED = replace(PROGRESS, overhead={"detection": 3.0, "plan": 1.5})
SEEN = replace(WELL, stats=STATS, progress=MEASURED)
FIXED = 4.5 + INSTALL_S


def queries(found: StatusDocument) -> dict[str, tuple[float | None, str | None]]:
    return {q.id: (q.recovery_s, q.slowest_node) for q in found.queries.items}


def test_all_partitions_of_the_slowest_node_count(topology: Topology) -> None:
    """n1 has tweets.0, clean.0 and count.0: 1 + (2 + 2) + (0.5 + 0.5) s; n2 0.5 + 3 s; n3 3 s."""
    found = document(topology, SEEN)
    assert {p.id: (p.load_s, p.replay_s, p.replay_rows) for p in found.partitions} == {
        "tweets.0": (0.0, 1.0, 100),
        "clean.0": (2.0, 2.0, 200),
        "count.0": (0.5, 0.5, 50),
        "clean.1": (0.5, 3.0, 300),
        "count.1": (3.0, 0.0, 0),
    }
    assert queries(found) == {"count.0": (FIXED + 6.0, "n1#1"), "count.1": (FIXED + 6.0, "n1#1")}
    assert found.overhead is not None
    assert (found.overhead.detection_s, found.overhead.plan_s, found.overhead.install_s) == (
        3.0,
        1.5,
        INSTALL_S,
    )
    assert found.overhead.assumed == ("install",)


def test_another_node_counts_where_it_has_more_to_do(topology: Topology) -> None:
    more = {**STATS, "clean.1": PartitionStats(1.0, 1000, RestoreWork(800, 100.0, 2000.0))}
    found = queries(document(topology, replace(SEEN, stats=more)))
    assert found == {"count.0": (FIXED + 6.0, "n1#1"), "count.1": (FIXED + 8.5, "n2#1")}


@pytest.mark.parametrize("why", ["not said", "lost", "fed again by its upstreams"])
def test_what_is_not_known_of_one_partition_is_not_known_of_its_queries(topology: Topology, why: str) -> None:
    seen: Observation = SEEN
    if why == "not said":
        seen = replace(SEEN, stats={**STATS, "clean.1": PartitionStats(1.0, 1000)})
    elif why == "lost":
        positions = {p: k for p, k in MEASURED.positions.items() if p != "clean.1"}
        seen = replace(SEEN, progress=replace(MEASURED, positions=positions))
    else:
        seen = replace(SEEN, progress=replace(MEASURED, backed=frozenset({"clean.1"})))
    found = document(topology, seen)
    assert queries(found) == {"count.0": (FIXED + 6.0, "n1#1"), "count.1": (None, None)}
    assert explain(found, "count.1").recovery is None
    assert "if lost" not in page(explain(found, "count.1"))


def with_standby(availability: str, every: int = 1) -> Topology:
    """`clean` has standbys of this kind."""
    changes = {
        "operators[clean].availability": availability,
        "operators[clean].deterministic": True,
        "operators[count].deterministic": True,
        "batch.interval": "500ms",
    }
    if availability == "passive-standby":
        changes["operators[clean].standby"] = {"every": every}
    return expand(override(load_text(TOPOLOGY), changes))


def test_one_with_an_active_standby_reads_and_replays_nothing() -> None:
    seen = replace(SEEN, progress=replace(MEASURED, standbys={"clean.0": 9}))
    found = document(with_standby("active-standby"), seen)
    assert queries(found)["count.0"] == (FIXED + 2.0, "n1#1")


@pytest.mark.parametrize(
    ("every", "at", "rows_s", "rows"),
    [
        (4, 9, 60.0, 120),
        (1, 7, 60.0, 90),  # it is further behind now
        (1, 10, 5.0, 3),  # of two and a half
        (10, 9, 60.0, 200),  # no more than behind the checkpoint
        (4, 9, None, 200),
        (4, 9, 0.0, 0),
    ],
)
def test_one_with_a_passive_standby_replays_what_its_copy_does_not_have(
    every: int, at: int, rows_s: float | None, rows: int
) -> None:
    """The copy is in memory, so nothing is read."""
    stats = {**STATS, "clean.0": replace(STATS["clean.0"], input_rows_s=rows_s)}
    seen = replace(SEEN, stats=stats, progress=replace(MEASURED, standbys={"clean.0": at}))
    found = document(with_standby("passive-standby", every), seen)
    (clean,) = [p for p in found.partitions if p.id == "clean.0"]
    assert (clean.load_s, clean.replay_rows, clean.replay_s, clean.assumed) == (0.0, rows, rows / 100, ())
    assert queries(found)["count.0"] == (pytest.approx(FIXED + 2.0 + rows / 100), "n1#1")


def test_what_a_copy_does_not_have_is_replayed_at_an_assumed_rate_where_none_was_measured() -> None:
    stats = {**STATS, "clean.0": PartitionStats(1.0, 4000, RestoreWork(200))}
    seen = replace(SEEN, stats=stats, progress=replace(MEASURED, standbys={"clean.0": 9}))
    found = document(with_standby("passive-standby"), seen)
    assert {p.id: p.assumed for p in found.partitions}["clean.0"] == ("replay",)


def test_explain_says_what_the_seconds_are_made_of(topology: Topology) -> None:
    found = explain(document(topology, SEEN), "count.1")
    recovery = found.recovery
    assert recovery is not None
    parts = (recovery.detection_s, recovery.plan_s, recovery.install_s, recovery.load_s, recovery.replay_s)
    assert parts == (3.0, 1.5, INSTALL_S, 2.5, 3.5) and sum(parts) == recovery.seconds
    assert (recovery.node, recovery.partitions_there, recovery.assumed) == ("n1#1", 3, ("install",))
    assert [(p.partition, p.seconds) for p in recovery.partitions] == [
        ("clean.1", FIXED + 3.5),
        ("count.1", FIXED + 3.0),
        ("tweets.0", FIXED + 1.0),
    ], "what the query needs, and not what else is on the node"
    text = page(found)
    assert f"{FIXED + 6.0:.1f} s for n1#1 with its 3 partitions" in text
    assert "(assumed, as it was not measured here yet: install)" in text
    assert "clean.1 n2#1 10.0 s 0.0 MiB 0.50 s 300 3.00 s" in text


def test_what_was_not_measured_is_marked_and_named(topology: Topology) -> None:
    bare = {p: PartitionStats(1.0, s.state_bytes, RestoreWork(400_000)) for p, s in STATS.items()}
    found = explain(document(topology, replace(SEEN, stats=bare, progress=PROGRESS)), "count.0")
    assert found.recovery is not None
    assert found.recovery.assumed == ("plan", "install", "load", "replay")
    text = page(found)
    assert "0.00 s ? 400,000 4.00 s ?" in text
    tweets = next(line for line in found.recovery.partitions if line.partition == "tweets.0")
    assert tweets.assumed == ("replay",), "it has no state to read"


def test_a_page_has_those_that_take_longest(topology: Topology) -> None:
    found = explain(document(topology, SEEN), "count.1")
    assert found.recovery is not None
    many = tuple(replace(found.recovery.partitions[0], partition=f"p.{k}") for k in range(MOST_TIMES + 2))
    text = page(replace(found, recovery=replace(found.recovery, partitions=many)))
    assert f"p.{MOST_TIMES - 1} " in text and f"p.{MOST_TIMES} " not in text and "and 2 more" in text


# -- objectives --------------------------------------------------------------------------------------------------------

EVENTUAL = {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"}
AIM = Aim(20, 300, 1.5, 4.0)


def with_objective(seconds: str, **aims: Aim) -> StatusDocument:
    text = override(
        load_text(TOPOLOGY), {**EVENTUAL, "operators[count].output.recovery": {"objective": seconds}}
    )
    stats = {
        p: replace(s, restore=replace(s.restore or RestoreWork(0), aim=aims.get(p[:5])))
        for p, s in STATS.items()
    }
    return document(expand(text), replace(SEEN, stats=stats))


def test_the_document_says_whether_an_objective_is_held_and_what_follows_from_it() -> None:
    found = with_objective("13s", clean=AIM)
    assert {q.id: (q.objective_s, q.held) for q in found.queries.items} == {
        "count.0": (13.0, True),
        "count.1": (13.0, True),
    }
    assert {q.held for q in with_objective("12s").queries.items} == {False}, "12.5 s are more"
    aims = {p.id: p.aim for p in found.partitions}
    assert aims["clean.0"] == AimView(4.0, 20, 300, 1.5) and aims["tweets.0"] is None
    assert {q.held for q in document(expand(load_text(TOPOLOGY)), SEEN).queries.items} == {None}


@pytest.mark.parametrize(
    ("seconds", "aims", "why"),
    [
        (
            "6s",
            {"clean": AIM, "count": AIM, "tweet": AIM},
            "noticing the loss, planning and installing alone take 6.5 s",
        ),
        ("7s", {"clean": AIM, "count": AIM}, "1.0 s are of partitions about which it can do nothing"),
        ("12s", {"clean": replace(AIM, least_s=4.5), "count": AIM, "tweet": AIM}, "takes longer (clean.0)"),
        ("12s", {"clean": AIM, "count": AIM, "tweet": AIM}, "slots are not stored as often as that needs"),
    ],
)
def test_explain_says_why_an_objective_is_not_held(seconds: str, aims: dict[str, Aim], why: str) -> None:
    found = explain(with_objective(seconds, **aims), "count.0")
    assert found.recovery is not None and found.recovery.held is False
    held = explain(with_objective("20s", **aims), "count.0").recovery
    assert held is not None and (held.held, held.why) == (True, "")
    assert why in found.recovery.why
    assert f"objective {seconds[:-1]} s, not held: " in page(found)
