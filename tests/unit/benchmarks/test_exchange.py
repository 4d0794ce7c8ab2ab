"""What the benchmark of the exchange prints."""

from __future__ import annotations

from benchmarks.exchange import lines

STEP = {"count": 1800, "p50_ms": 0.8, "p99_ms": 7.2, "missing": 0, "load": 2.04, "mb_s": [31.1, 30.9]}


def test_each_step_has_a_line_with_what_ran_beside_it() -> None:
    steps = {
        "small": STEP,
        "beside_a_job": {**STEP, "jobs": 19, "job_ms": 149.3},
        "beside_a_chain": {**STEP, "jobs": 8, "chain_ms": 404.4, "missing": 2},
        "bulk": STEP,
    }
    begin, end = "1800 messages, p50 0.8 ms, p99 7.2 ms", "; missing 0, load average 2.0"
    assert lines(3, steps) == [
        f"3 nodes, small: {begin}{end}",
        f"3 nodes, beside_a_job: {begin}, 19 jobs of 149.3 ms{end}",
        f"3 nodes, beside_a_chain: {begin}, 8 chains of 404.4 ms; missing 2, load average 2.0",
        f"3 nodes, bulk: {begin}, MB/s into each node [31.1, 30.9]{end}",
    ]
