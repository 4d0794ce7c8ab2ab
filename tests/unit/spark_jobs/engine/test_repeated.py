"""Jobs that fail for one reason again and again."""

from __future__ import annotations

from reprise.spark_jobs.engine.repeated import LIMIT, Repeated


def test_how_long_a_step_has_not_returned_makes_no_other_reason() -> None:
    repeated = Repeated()
    told = [repeated.failed(f"node n3: in operator x, batch 57 for {45 * k}.{k} s") for k in range(LIMIT)]
    assert told == [False] * (LIMIT - 1) + [True]
    assert (
        repeated.stuck == f"{LIMIT} jobs in a row have failed: node n3: in operator x, batch 57 for 180.4 s"
    )


def test_another_reason_counts_anew() -> None:
    repeated = Repeated()
    for _ in range(LIMIT - 1):
        repeated.failed("no such column")
    assert not repeated.failed("another")
    assert repeated.stuck == ""
