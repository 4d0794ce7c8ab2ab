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
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
        return _Sample(now, digest, partitions, np.array(loads, np.float64).reshape(-1, 2))


def _typical(samples: list[_Sample]) -> dict[str, PartitionStats]:
    """High medians of CPU; the newest size of the state."""
    if not samples:
        return {}
    newest = samples[-1]
    if any(sample.partitions != newest.partitions for sample in samples):
        return _typical_of_each(samples)
    medians = np.sort([sample.loads[:, 0] for sample in samples], axis=0)[len(samples) // 2].tolist()
    sizes = newest.loads[:, 1].astype(np.int64).tolist()
    rows = zip(newest.partitions, medians, sizes, strict=True)
    return {partition: PartitionStats(cpu, size) for partition, cpu, size in rows}


def _typical_of_each(samples: list[_Sample]) -> dict[str, PartitionStats]:
    """The same where not every sample tells of every partition."""
    rows: dict[str, list[npt.NDArray[np.float64]]] = {}
    for sample in samples:
        for partition, load in zip(sample.partitions, sample.loads, strict=True):
            rows.setdefault(partition, []).append(load)
    found = {}
    for partition, loads in rows.items():
        cpu, _ = np.sort(loads, axis=0)[len(loads) // 2].tolist()
        found[partition] = PartitionStats(cpu, int(loads[-1][1]))
    return found
