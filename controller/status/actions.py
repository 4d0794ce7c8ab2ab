"""The words for what a run of `reprise run` does to its cluster and sees of it, as its record has them."""

from __future__ import annotations

from typing import Final, Literal

FaultAction = Literal["kill", "notice", "freeze", "thaw", "add", "crash", "start", "trace"]
"""What a fault does.  `trace` stands in files alone and becomes kills and adds; `start` ends the absence of ZooKeeper."""
ARRIVED: Final = "arrived"
"""A node that was added is there."""
STREAM_BEGAN: Final = "stream-began"
DRIVER_HUNG: Final = "driver-hung"
RESTARTED: Final = "restarted"
"""A service that had ended."""
QUERIES_CHANGE: Final = "queries-change"
"""Queries are to come or go: the stream is to drain."""
QUERIES_CHANGED: Final = "queries-changed"
"""They have, and batches go on."""
QUERIES_REFUSED: Final = "queries-refused"
BREAKS: Final[tuple[FaultAction, ...]] = ("kill", "freeze", "crash")
"""What takes something away at once."""
FAILURES: Final[tuple[FaultAction, ...]] = (*BREAKS, "notice")
"""What takes something away, at once or a little later."""
