"""The load of partitions as it was before a failure was noticed.

A failure is noticed seconds after it has begun, and meanwhile statistics show the partitions that died, and
those that wait for them, as doing nothing. So the greatest load of the last statistics counts. This is a
memory of the process: a coordinator that has just started sees only the newest statistics, and where they say
too little the declared costs hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scheduler.model import PartitionStats

WINDOW_S = 15.0
"""Longer than detection takes (a session timeout of a few seconds and a period of the statistics)."""


@dataclass(slots=True)
class StatsWindow:
    _records: list[tuple[float, bytes, Mapping[str, PartitionStats]]] = field(default_factory=list)
    _greatest: dict[str, PartitionStats] = field(default_factory=dict)

    def add(
        self, now: float, raw: bytes | None, parse: Callable[[bytes], Mapping[str, PartitionStats]]
    ) -> Mapping[str, PartitionStats]:
        """The greatest statistics of each partition within the window, with the record `raw` read now."""
        kept = [entry for entry in self._records if entry[0] > now - WINDOW_S]
        new = raw is not None and (not self._records or self._records[-1][1] != raw)
        if raw is not None and new:
            kept.append((now, raw, parse(raw)))
        elif not kept:
            kept = self._records[-1:]  # the newest counts however old it is
        if new or len(kept) != len(self._records):
            self._records, self._greatest = kept, _greatest(kept)
        return self._greatest


def _greatest(records: list[tuple[float, bytes, Mapping[str, PartitionStats]]]) -> dict[str, PartitionStats]:
    found: dict[str, PartitionStats] = {}
    for _, _, record in records:
        for partition, stats in record.items():
            known = found.get(partition)
            if known is None or stats.cpu_milli >= known.cpu_milli:
                found[partition] = stats
    return found
