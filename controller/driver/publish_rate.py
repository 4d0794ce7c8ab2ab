"""How often the driver writes its progress: at once where something has happened, else as its size allows.

Problem: a progress record names the position of every partition.  Written three times a second whatever it says, that of
10,000 partitions is a megabyte in five seconds through the log of every ZooKeeper server, to say that batches go on.

Invariants: what somebody may have to act upon (who fails, what is done, which partitions are at work) is written with the
next look.  What only grows is written as often as `BYTES_PER_S` allows.  Nothing at all is written no longer than
`HEARTBEAT_S`, as silence is how others know that a driver hangs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from reprise.scheduler.model import Progress

BYTES_PER_S = 100_000
"""On average, of what is written although nothing but numbers has changed."""
HEARTBEAT_S = 2.0
_CLOCKS = frozenset({"jobs", "stored", "time", "turns"})
"""Fields whose values go on although nobody waits for them."""
_GROWING = frozenset(
    {"positions", "horizon", "due", "punctuation", "lines", "buffers", "counters", "kept_since"}
)
"""Those whose values go on while nothing happens; of the positions it is news whose there are."""
_NEWS = tuple(f.name for f in fields(Progress) if f.name not in _CLOCKS | _GROWING)


@dataclass(slots=True)
class PublishRate:
    """When one record is due; times are in seconds of any clock that does not jump."""

    _news: object = None
    _grown: object = None
    _size: int = 0
    _written: float = float("-inf")

    def due(self, record: Progress, now: float) -> bool:
        """Whether to write it now."""
        waited = now - self._written
        if waited >= HEARTBEAT_S or self._news != _news(record):
            return True
        return self._grown != _grown(record) and waited * BYTES_PER_S >= self._size

    def wrote(self, record: Progress, now: float, size: int) -> None:
        """It is in ZooKeeper, in so many bytes."""
        self._news, self._grown, self._written, self._size = _news(record), _grown(record), now, size


def _news(record: Progress) -> object:
    return [getattr(record, name) for name in _NEWS], frozenset(record.positions)


def _grown(record: Progress) -> object:
    return [getattr(record, name) for name in sorted(_GROWING)]
