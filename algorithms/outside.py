"""What of the outside a partition waits for: a kind that programs count by, which all layers share.

The data plane says it, records carry it, and metrics, alerts and the status document show it; why, stands in the problems
that the driver complains of, for people.
"""

from __future__ import annotations

from enum import StrEnum


class Outside(StrEnum):
    """The values stand in records that outlive a version, so they keep their text."""

    SOURCE = "source"
    """Its source cannot be read now."""
    SINK = "sink"
    """Its sink cannot be written now."""
