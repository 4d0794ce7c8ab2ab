"""The load of partitions as it was before a failure was noticed.

A failure is noticed seconds after it has begun, and meanwhile statistics show the partitions that died, and
those that wait for them, as doing nothing; right after a start or a recovery they show partitions at full
speed. So the median of the last statistics counts: neither moves it as long as it is the smaller part. This is
a memory of the process: a coordinator that has just started sees only the newest statistics, and where they
say too little the declared costs hold.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median_high

from scheduler.model import PartitionStats

WINDOW_S = 24.0
"""Eight periods of the statistics; detection takes a session timeout and a period, at most three of them."""

Record = Mapping[str, PartitionStats]


@dataclass(slots=True)
class _Sample:
    at: float
    packed: bytes
    parsed: Record | None = None


@dataclass(slots=True)
class StatsWindow:
    """Records are parsed when somebody asks: most of them are looked at by nobody, and wait compressed, as an operator
    keeps those of a thousand topologies."""

    _samples: list[_Sample] = field(default_factory=list)
    _typical: Record | None = field(default_factory=dict)

    def note(self, now: float, raw: bytes | None) -> None:
        """The record as it was read now."""
        kept = [sample for sample in self._samples if sample.at > now - WINDOW_S]
        packed = raw and zlib.compress(raw, 1)
        new = bool(packed) and (not self._samples or self._samples[-1].packed != packed)
        if packed and new:
            kept.append(_Sample(now, packed))
        elif not kept:
            kept = self._samples[-1:]  # the newest counts however old it is
        if new or len(kept) != len(self._samples):
            self._samples, self._typical = kept, None

    def add(self, now: float, raw: bytes | None, parse: Callable[[bytes], Record]) -> Record:
        """The typical statistics of each partition within the window, with the record `raw` read now."""
        self.note(now, raw)
        if self._typical is None:
            for sample in self._samples:
                if sample.parsed is None:
                    sample.parsed = parse(zlib.decompress(sample.packed))
            self._typical = _typical([sample.parsed or {} for sample in self._samples])
        return self._typical


def _typical(records: list[Record]) -> dict[str, PartitionStats]:
    found: dict[str, list[PartitionStats]] = {}
    for record in records:
        for partition, stats in record.items():
            found.setdefault(partition, []).append(stats)
    return {
        partition: PartitionStats(
            cpu_milli=median_high(s.cpu_milli for s in entries),
            tuples_per_s=median_high(s.tuples_per_s for s in entries),
            state_bytes=entries[-1].state_bytes,
        )
        for partition, entries in found.items()
    }
