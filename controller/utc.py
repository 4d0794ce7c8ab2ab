"""Moments for people and for API servers: total, as what stands in a record may be no moment of any clock."""

from __future__ import annotations

from datetime import UTC, datetime

_LAST_S = 253_402_300_799.0
"""The last second of the year 9999, after which neither Python nor RFC 3339 has a date."""


def utc(seconds: float) -> datetime:
    """This many seconds after the epoch, or the nearest moment from 1970 to 9999 that has a date."""
    return datetime.fromtimestamp(min(max(0.0, seconds), _LAST_S), UTC)
