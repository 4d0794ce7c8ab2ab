"""What the driver writes about itself, as plain values: the records `progress` and `stats` of docs/recovery.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reprise.spark_jobs.credentials import redacted
from reprise.spark_jobs.engine.progress import Progress
from reprise.spark_jobs.node.command import Usage


def progress_record(
    epoch: int, told: Progress, problems: Sequence[str], now: float, turns: int, turn_limit_s: float
) -> dict[str, Any]:
    """The record `progress`; `now`: unix seconds; `turns`: begun by the loop, another within `turn_limit_s`.

    What clients and user code say goes to everybody who looks, so a URL in it loses its password.
    """
    return {
        "driver": str(epoch),
        "seq": told.seq,
        "generation": told.generation,
        "nodes": list(told.nodes),
        "positions": dict(told.positions),
        "failed": {partition: redacted(why) for partition, why in told.failed.items()},
        "horizon": told.horizon,
        "due": told.due,
        "punctuation": told.punctuation,
        "ended": told.ended,
        "done": told.done,
        "checkpoint": told.checkpoint,
        "bad_checkpoints": list(told.bad_checkpoints),
        "trimmed": told.trimmed,
        "gaps": list(told.gaps),
        "stuck": redacted(told.stuck),
        "buffers": {"memory": told.memory, "disk": told.disk},
        "jobs": told.jobs,
        "drained": told.drained,
        "problems": [redacted(problem) for problem in problems],
        "time": now,
        "turns": turns,
        "turn_limit_s": turn_limit_s,
    }


def rates(
    before: Mapping[str, Usage], now: Mapping[str, Usage], seconds: float
) -> dict[str, dict[str, float]]:
    """CPU in thousandths of a core and tuples a second of each partition; a host that began anew counts from zero."""
    found = {}
    for partition, usage in now.items():
        old = before.get(partition, Usage(0.0, 0))
        if usage.cpu_s < old.cpu_s:
            old = Usage(0.0, 0)
        found[partition] = {
            "cpu_milli": round((usage.cpu_s - old.cpu_s) / seconds * 1000, 3),
            "tuples_per_s": round((usage.tuples - old.tuples) / seconds, 1),
            "state_bytes": 0,
        }
    return found
