"""What the driver writes about itself: the records `progress` and `stats` of docs/recovery.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprise.algorithms.recovery_time import RestoreWork
from reprise.scheduler.model import Desired, PartitionStats, Progress
from reprise.spark_jobs.credentials import redacted
from reprise.spark_jobs.engine import progress as engine_output
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.node.command import Usage
from reprise.spark_jobs.operators.frames import END_OF_TIME

REASONS, MIN_REASON = 400_000, 80
"""Characters for the reasons of all failed partitions together, and for each at least."""
MAX_PROBLEM = 2000
RATE_BATCHES = 4
"""Over so many batches at least the rate is taken at which rows come: between two records there may be none."""


def wanted(desired: Desired) -> EngineSpec:
    """What the engine is to bring about for the record `desired`."""
    return EngineSpec(
        seq=desired.seq,
        generation=desired.generation,
        checkpoint=desired.checkpoint,
        assignment=desired.assignment,
        retain=desired.retain,
        punctuate=desired.punctuate,
        paused=desired.paused,
        driver=desired.driver,
        plan=desired.plan or "",
        checkpoint_after=desired.checkpoint_after,
        lines=desired.lines,
        standbys=desired.standbys,
        anew=desired.anew,
    )


def progress_of(
    epoch: int,
    progress: engine_output.Progress,
    problems: Sequence[str],
    now: float,
    turns: int,
    turn_limit_s: float,
) -> Progress:
    """The record `progress`; `now`: unix seconds; `turns`: begun by the loop, another within `turn_limit_s`.

    What clients and user code say goes to everybody who looks, so a URL in it loses its password.
    """
    return Progress(
        driver=str(epoch),
        seq=progress.seq,
        generation=progress.generation,
        nodes=frozenset(progress.nodes),
        positions=progress.positions,
        failed={
            partition: replace(failure, reason=redacted(failure.reason))
            for partition, failure in progress.failed.items()
        },
        horizon=progress.horizon,
        due=progress.due,
        punctuation=progress.punctuation,
        ended=progress.ended,
        done=progress.done,
        checkpoint=progress.covers.everybody,
        lines=progress.covers.others,
        restored=progress.restored,
        bad_checkpoints=frozenset(progress.bad_checkpoints),
        trimmed=progress.trimmed,
        kept_since=progress.kept_since,
        not_kept=frozenset(progress.not_kept),
        stuck=redacted(progress.stuck),
        buffers={"memory": progress.memory, "disk": progress.disk},
        jobs=progress.jobs,
        chained=progress.chained,
        drained=progress.drained,
        counters=progress.counters,
        skipped=progress.skipped,
        marked=progress.marked,
        standbys=progress.standbys,
        backed=progress.backed,
        unbacked=progress.unbacked,
        overhead=progress.overhead,
        stored=progress.stored,
        deterministic=progress.deterministic,
        output_waits=progress.output_waits,
        adopted=progress.adopted,
        waits=progress.waits,
        refused=progress.refused,
        problems=tuple(redacted(problem) for problem in problems),
        time=now,
        turns=turns,
        turn_limit_s=turn_limit_s,
    )


def bounded(progress: Progress) -> Progress:
    """The report with reasons no longer than so many partitions may have at once: texts of user code have any length."""
    length = max(MIN_REASON, REASONS // max(1, len(progress.failed)))
    return replace(
        progress,
        failed={
            partition: replace(failure, reason=cut(failure.reason, length - len(failure.kind.value) - 2))
            for partition, failure in progress.failed.items()
        },
        problems=tuple(cut(text, MAX_PROBLEM) for text in progress.problems),
    )


def stats_of(
    before: Mapping[str, Usage],
    now: Mapping[str, Usage],
    seconds: float,
    state_bytes: Mapping[str, int],
    works: Mapping[str, RestoreWork] | None = None,
    input_rows_s: Mapping[str, float] | None = None,
) -> dict[str, PartitionStats]:
    """The record `stats`: the CPU of each partition since `before`, in thousandths of a core, the size of its stored
    state, how many rows come (`InputRates`), its watermark, and what it would have to do if it were lost.  A host that
    began anew counts its CPU from zero."""
    found = {}
    for partition, usage in now.items():
        old = before.get(partition, Usage(0.0, 0))
        if usage.cpu_s < old.cpu_s:
            old = Usage(0.0, 0)
        found[partition] = PartitionStats(
            cpu_milli=round((usage.cpu_s - old.cpu_s) / seconds * 1000, 3),
            state_bytes=state_bytes.get(partition, 0),
            restore=(works or {}).get(partition),
            input_rows_s=(input_rows_s or {}).get(partition),
            watermark=None if usage.watermark == END_OF_TIME else usage.watermark,
            input_ended=usage.watermark == END_OF_TIME,
        )
    return found


@dataclass(slots=True)
class InputRates:
    """Rows a second that each partition applies, over `least_s` seconds at least.  Who was installed anew since counts from
    zero."""

    least_s: float
    _before: Mapping[str, Usage]
    _since: float
    _rows_s: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def over_batches(batch_interval_s: float, used: Mapping[str, Usage], now: float) -> InputRates:
        """The rates from now on; `used`: what partitions have used until now."""
        return InputRates(RATE_BATCHES * batch_interval_s, used, now)

    def at(self, usage: Mapping[str, Usage], now: float) -> Mapping[str, float]:
        """The newest rates; none before the first `least_s` are over."""
        if (seconds := now - self._since) >= self.least_s and seconds > 0:
            # three digits: it is no more exact, and a record may have ten thousand of them
            self._rows_s = {p: float(f"{self._rows(p, u) / seconds:.3g}") for p, u in usage.items()}
            self._before, self._since = usage, now
        return self._rows_s

    def _rows(self, partition: str, usage: Usage) -> int:
        old = self._before.get(partition)
        return usage.rows if old is None or usage.rows < old.rows else usage.rows - old.rows


def cut(text: str, length: int) -> str:
    """The text, at most so many characters of it, and an ellipsis where there are more."""
    return text if len(text) <= length else f"{text[:length]}..."
