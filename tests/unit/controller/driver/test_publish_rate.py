"""Progress is written at once where something happened, as often as its size allows where only numbers grow, and never
less often than others need to see that the driver lives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from reprise.algorithms.failure import Failure
from reprise.controller.driver.publish_rate import BYTES_PER_S, HEARTBEAT_S, PublishRate
from reprise.controller.driver.report import MAX_PROBLEM, MIN_REASON, REASONS, bounded
from reprise.scheduler.model import Progress

LOOK_S = 0.3


RECORD = Progress(
    driver="1",
    seq=3,
    positions={"a.0": 5, "b.0": 5},
    horizon=6,
    due=6,
    jobs=1,
    buffers={"memory": 0},
    punctuation=4,
)


def record(**changes: Any) -> Progress:
    return replace(RECORD, **changes)


def written(pace: PublishRate, looks: int, size: int, each: Any) -> list[int]:
    """The looks of which the driver wrote, when the record of look k is `each(k)`."""
    found = []
    for k in range(looks):
        now = k * LOOK_S
        if pace.due(each(k), now):
            pace.wrote(each(k), now, size)
            found.append(k)
    return found


def test_a_small_record_is_written_whenever_batches_go_on() -> None:
    assert written(PublishRate(), 20, 500, lambda k: record(horizon=k)) == list(range(20))


def test_an_unchanged_record_is_written_as_a_heartbeat_only() -> None:
    looks = written(
        PublishRate(), 100, 500, lambda k: record(time=float(k), jobs=k, stored={"seconds": k / 10})
    )
    waits = [b - a for a, b in pairwise(looks)]
    assert max(waits) * LOOK_S < HEARTBEAT_S + LOOK_S
    assert len(looks) < 20


def test_a_heartbeat_is_due_when_its_time_is_over() -> None:
    pace = PublishRate()
    pace.wrote(record(), 10.0, 500)
    assert not pace.due(record(), 10.0 + HEARTBEAT_S - 0.01)
    assert pace.due(record(), 10.0 + HEARTBEAT_S)


def test_a_large_record_is_bounded_in_bytes() -> None:
    size, looks = 90_000, 200
    found = written(PublishRate(), looks, size, lambda k: record(positions={"a.0": k, "b.0": k}))
    assert len(found) * size <= BYTES_PER_S * looks * LOOK_S + size


def test_what_somebody_may_act_upon_does_not_wait() -> None:
    for news in (
        {"failed": {"a.0": Failure.parse("node lost")}},
        {"positions": {"a.0": 5}},
        {"seq": 4},
        {"nodes": frozenset({"n1#1"})},
    ):
        pace = PublishRate()
        pace.wrote(record(), 10.0, 900_000)
        assert not pace.due(record(horizon=7), 10.3)
        assert not pace.due(record(due=7), 10.3)
        assert pace.due(record(**news), 10.3), news


def test_texts_of_user_code_cannot_make_a_record_too_large() -> None:
    failed = {f"a.{k}": Failure.parse("poison: " + "x" * 5000) for k in range(10_000)}
    found = bounded(record(failed=failed, problems=("y" * 9000,)))
    assert (
        sum(len(str(failure)) for failure in found.failed.values())
        <= max(REASONS, 10_000 * MIN_REASON) + 3 * 10_000
    )
    assert len(found.problems[0]) <= MAX_PROBLEM + 3
    few = {"a.0": Failure.parse("poison: " + "x" * 5000)}
    assert bounded(record(failed=few)).failed == few
