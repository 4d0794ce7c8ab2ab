"""Which batches of which partitions are skipped: written down before anybody acts on it, and read by every later driver.

Invariant: what a replay steps through without is what was stepped through without the first time.  Each driver has one
record, `skipped/<epoch>.json`, with all skips that count, those of its predecessors too; the newest epoch counts.  A driver
claims its epoch, then reads the newest record, then writes its own; who writes a skip asks for later claims after that and
before it tells anybody.  So either the later driver has read it, or nobody has acted on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reprise.spark_jobs.state.driver_records import DriverRecords
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.storage.files import Files

SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Skip:
    """Partition `partition` began anew, with its initial state, behind batch `until`.

    `after`: of each reader that was at work, the last of its batches that it had applied; it applies the others up to
    `until` without.  `shown`: the last batch that the partition's own sink was known to show, where it has one.
    `marked`: output partition -> first and last batch that may lack rows.  `needed`: the last batch of the partition that
    anybody needs; None: nothing is known to be wrong with those behind it.  Its code is not called for what lies between
    that and `until`, as it may be what raised there.
    """

    partition: str
    until: int
    after: Mapping[str, int] = field(default_factory=dict)
    shown: int = 0
    marked: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    needed: int | None = None

    @property
    def last(self) -> int:
        """The last batch that this matters for."""
        return max((self.until, *(last for _, last in self.marked.values())))

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> Skip:
        """The inverse of `asdict` and JSON; raises what parsing raises."""
        marked = {str(p): (int(first), int(last)) for p, (first, last) in raw["marked"].items()}
        after = {str(p): int(k) for p, k in raw["after"].items()}
        needed = raw.get("needed")  # which versions before the command `skip` do not write
        last = None if needed is None else int(needed)
        return Skip(str(raw["partition"]), int(raw["until"]), after, int(raw["shown"]), marked, last)


class SkipRecords:
    """The record of one driver below a checkpoint location.  `fence`: its claim; without one there is no other driver."""

    def __init__(self, location: str, fence: Fence | None) -> None:
        self._records = DriverRecords(Files(location), SKIPPED)
        self._fence = fence

    @property
    def follows(self) -> bool:
        """Whether another driver may have begun before this one, which may still write."""
        return self._fence is not None and self._fence.epoch > 1

    def read(self) -> tuple[Skip, ...] | None:
        """All skips that count; None where no driver has a record.  StoreError: not now; DamagedError: nobody knows what was
        skipped."""
        return self._records.newest(lambda data: tuple(Skip.parse(raw) for raw in json.loads(data)))

    def begin(self, skips: Iterable[Skip]) -> None:
        """The first record of this driver, where one is needed; then those of its predecessors go.  Raises what `write`
        raises."""
        self.write(skips)
        if self._fence is not None:
            self._records.forget_before(self._fence.epoch)

    def write(self, skips: Iterable[Skip]) -> None:
        """Let these count and no others.  StoreError: it is not known whether they do; SupersededError: by a later driver,
        and nobody may be told of them."""
        data = json.dumps([asdict(skip) for skip in skips], separators=(",", ":")).encode()
        self._records.write(0 if self._fence is None else self._fence.epoch, data)
        if self._fence is not None:
            self._fence.check()
