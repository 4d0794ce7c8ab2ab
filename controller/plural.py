"""Counts in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """`1 query waits`, `3 queries wait`: the number with what agrees with it."""
    return f"{number} {one if number == 1 else many}"
