"""CPU as plans count it: whole thousandths of a core, and of a node no more than its cap."""

from __future__ import annotations


def milli_cpu(cores: float) -> int:
    """Thousandths of a core, rounded, at least 1: what is declared as nothing still has its place."""
    return max(1, round(cores * 1000))


def under_cap(share: float, cpu_milli: int) -> int:
    """What plans may use of a node of `cpu_milli`, rounded down; `share` is `recovery.cpuCap`.  In millionths of the share,
    so that 0.8 of 1,000 is 800 and not 799."""
    return round(share * 1_000_000) * cpu_milli // 1_000_000
