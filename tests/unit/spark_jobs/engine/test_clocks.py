"""When partitions are asked to store themselves, and which of them share a clock."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.clocks import Clocks, shared_clocks
from reprise.spark_jobs.topology import StreamTopology, expand, load_text, override
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

FEEDBACK = (Path(__file__).parents[4] / "examples/feedback.yaml").read_text()


def resource_of(text: str, log: str, **changes: object) -> StreamTopology:
    more = {"checkpoint.protocol": "uncoordinated", "checkpoint.log": log, **changes}
    return override(load_text(text), more)


def clocks_of(resource: StreamTopology) -> Clocks:
    return Clocks(resource, expand(resource))


def test_each_asks_once_an_interval_more_or_less_and_not_all_at_once() -> None:
    resource = resource_of(DIAMOND.replace("everyBatches: 10", "interval: 10s"), "memory")
    clocks = clocks_of(resource)
    positions = dict.fromkeys(clocks.topology.order, 5)
    times: dict[str, list[float]] = {p: [] for p in positions}
    for tenth in range(6000):
        clocks.ask(positions, 9, tenth / 10)
        for p, batch in list(clocks.requests.items()):
            assert batch == 6, "the first one that it applies from here on"
            times[p].append(tenth / 10)
            clocks.stored(p, 6)
    gaps = [b - a for asked in times.values() for a, b in pairwise(asked)]
    assert 7.9 <= min(gaps) < 9
    assert 11 < max(gaps) <= 12.1
    assert len({asked[0] for asked in times.values()}) > 4, "the first ones are spread over an interval"
    assert clocks.asked == sum(map(len, times.values()))


def test_a_request_stands_until_it_is_known_to_be_served() -> None:
    clocks = clocks_of(resource_of(DIAMOND, "memory"))
    positions = dict.fromkeys(clocks.topology.order, 0)
    clocks.ask(positions, 0, 0.0)
    (asked, *_) = clocks.requests
    batch = clocks.requests[asked]
    for now in range(50):
        clocks.ask(positions, 0, float(now))
    assert clocks.requests[asked] == batch
    clocks.stored(asked, batch - 1)
    assert clocks.requests[asked] == batch
    clocks.stored(asked, batch)
    assert asked not in clocks.requests
    clocks.ask({p: k for p, k in positions.items() if p != asked}, 0, 99.0)
    assert asked not in clocks.requests, "who is not at work is not asked"


def test_an_operator_may_have_an_interval_of_its_own() -> None:
    text = DIAMOND.replace(
        "everyBatches: 10", "interval: 10s, jitter: 0, protocol: uncoordinated, log: memory"
    ).replace("with: {by: count", "checkpoint: {interval: 60s}\n      with: {by: count")
    clocks = clocks_of(resource_of(text, "memory"))
    asked = dict.fromkeys(clocks.topology.order, 0)
    for second in range(600):
        clocks.ask(dict.fromkeys(clocks.topology.order, second), second, float(second))
        for p, batch in list(clocks.requests.items()):
            asked[p] += 1
            clocks.stored(p, batch)
    assert asked["top.0"] in (9, 10)
    assert asked["count.0"] in (59, 60)


@pytest.mark.parametrize(
    ("log", "changing", "together"),
    [
        ("memory", [], [{"smooth", "decay"}]),
        ("checkpointed", [], []),
        ("checkpointed", ["smooth", "decay"], [{"smooth", "decay"}]),
        ("memory", ["count"], [{"smooth", "decay", "count"}]),
    ],
)
def test_those_share_a_clock_between_which_no_line_could_lie(
    log: str, changing: list[str], together: list[set[str]]
) -> None:
    shared = shared_clocks(resource_of(FEEDBACK, log), frozenset(changing))
    by_clock: dict[str, set[str]] = {}
    for operator, clock in shared.items():
        by_clock.setdefault(clock, set()).add(operator)
    assert list(by_clock.values()) == together


def test_who_shares_a_clock_is_asked_for_a_batch_that_nobody_can_have_passed() -> None:
    clocks = clocks_of(resource_of(FEEDBACK, "memory"))
    positions = {p: k for k, p in enumerate(clocks.topology.order)}
    clocks.ask(positions, 40, 0.0)
    cycle = [p for p in clocks.topology.order if p.startswith(("smooth", "decay"))]
    assert len({clocks.requests[p] for p in cycle}) == 1
    assert clocks.requests[cycle[0]] > 40
    clocks.forget()
    clocks.ask({p: k for p, k in positions.items() if p != cycle[0]}, 40, 0.0)
    assert not clocks.requests.keys() & set(cycle), "only together"
