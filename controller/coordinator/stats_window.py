"""The load of partitions as it was before a failure was noticed.

A failure is noticed seconds after it has begun, and meanwhile statistics show the partitions that died, and
those that wait for them, as doing nothing; right after a start or a recovery they show partitions at full
speed. So the median of the last statistics counts: neither moves it as long as it is the smaller part. This is
a memory of the process: a coordinator that has just started sees only the newest statistics, and where they
say too little the declared costs hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isnan, nan

import numpy as np
import numpy.typing as npt

from reprise.algorithms.recovery_time import RestoreWork
from reprise.scheduler.model import PartitionStats

WINDOW_S = 24.0
"""Eight periods of the statistics; detection takes a session timeout and a period, at most three of them."""

Record = Mapping[str, PartitionStats]


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    digest: bytes
    partitions: tuple[str, ...]
    """The same object in all samples that name the same ones in the same order."""
    loads: npt.NDArray[np.float64]
    """cpu_milli, state_bytes of each partition (n x 2)."""
    works: npt.NDArray[np.float64] | None = None
    """rows, rows_s, bytes_s of `RestoreWork` (n x 3), nan where it is not known; only the newest sample has them."""


@dataclass(slots=True)
class StatsWindow:
    """Records are read when they are new, while there is time, and kept as numbers, as an operator keeps those of a
    thousand topologies; when a failure is noticed only the median is left to be taken."""

    _samples: list[_Sample] = field(default_factory=list)
    _typical: Record | None = field(default_factory=dict)

    def note(self, now: float, raw: bytes | None, parse: Callable[[bytes], Record]) -> None:
        """The record as it was read now."""
        kept = [sample for sample in self._samples if sample.at > now - WINDOW_S]
        digest = hashlib.blake2b(raw, digest_size=16).digest() if raw else b""
        new = bool(raw) and (not self._samples or self._samples[-1].digest != digest)
        if raw and new:
            kept = [replace(sample, works=None) for sample in kept]
            kept.append(self._sample(now, digest, parse(raw)))
        elif not kept:
            kept = self._samples[-1:]  # the newest counts however old it is
        if new or len(kept) != len(self._samples):
            self._samples, self._typical = kept, None

    def add(self, now: float, raw: bytes | None, parse: Callable[[bytes], Record]) -> Record:
        """The typical statistics of each partition within the window, with the record `raw` read now."""
        self.note(now, raw, parse)
        if self._typical is None:
            self._typical = _typical(self._samples)
        return self._typical

    def _sample(self, now: float, digest: bytes, record: Record) -> _Sample:
        partitions = tuple(record)
        if self._samples and self._samples[-1].partitions == partitions:
            partitions = self._samples[-1].partitions
        loads = [(s.cpu_milli, s.state_bytes) for s in record.values()]
        works = [_columns(s.restore) for s in record.values()]
        return _Sample(
            now,
            digest,
            partitions,
            np.array(loads, np.float64).reshape(-1, 2),
            np.array(works, np.float64).reshape(-1, 3),
        )


def _columns(work: RestoreWork | None) -> tuple[float, float, float]:
    if work is None:
        return nan, nan, nan
    return work.rows, work.rows_s or nan, work.bytes_s or nan


def _works(sample: _Sample) -> dict[str, RestoreWork]:
    """What partitions would have to do if they were lost, of those of which it is known."""
    if sample.works is None:
        return {}
    return {
        partition: RestoreWork(
            int(rows), None if isnan(rows_s) else rows_s, None if isnan(bytes_s) else bytes_s
        )
        for partition, (rows, rows_s, bytes_s) in zip(sample.partitions, sample.works.tolist(), strict=True)
        if not isnan(rows)
    }


def _typical(samples: list[_Sample]) -> dict[str, PartitionStats]:
    """High medians of CPU; the newest size of the state, and the newest of what a partition would have to do."""
    if not samples:
        return {}
    newest = samples[-1]
    works = _works(newest)
    if any(sample.partitions != newest.partitions for sample in samples):
        return _typical_of_each(samples, works)
    medians = np.sort([sample.loads[:, 0] for sample in samples], axis=0)[len(samples) // 2].tolist()
    sizes = newest.loads[:, 1].astype(np.int64).tolist()
    rows = zip(newest.partitions, medians, sizes, strict=True)
    return {partition: PartitionStats(cpu, size, works.get(partition)) for partition, cpu, size in rows}


def _typical_of_each(samples: list[_Sample], works: Mapping[str, RestoreWork]) -> dict[str, PartitionStats]:
    """The same where not every sample tells of every partition."""
    rows: dict[str, list[npt.NDArray[np.float64]]] = {}
    for sample in samples:
        for partition, load in zip(sample.partitions, sample.loads, strict=True):
            rows.setdefault(partition, []).append(load)
    found = {}
    for partition, loads in rows.items():
        cpu, _ = np.sort(loads, axis=0)[len(loads) // 2].tolist()
        found[partition] = PartitionStats(cpu, int(loads[-1][1]), works.get(partition))
    return found
