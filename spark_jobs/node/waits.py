"""What a partition waits for outside of the topology: its source that cannot be read, or its sink that cannot be written.

Each place in which a partition meets its source or sink notes what it has met there last, so what one place was refused is
not forgotten because another was answered.  Invariant: trouble that passes ends here, is said once for people and noted by
kind; what ends a partition goes on to whoever ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType

from reprise.algorithms.outside import Outside
from reprise.spark_jobs.errors import WAITS, NotYetError, SinkError, SourceError

_KINDS = {SourceError: Outside.SOURCE, SinkError: Outside.SINK}


class Place(Enum):
    """Where a partition meets its source or its sink."""

    STEP = auto()
    """It applies a batch: reads it, or gives its output to the sink."""
    RESEND = auto()
    """What its source has given is read again, for a reader that needs it."""
    PUBLISH = auto()
    """Output that waited for its checkpoint is given to the sink."""
    SETTLE = auto()
    """The sink is to show what it was given."""


@dataclass(slots=True)
class Waits:
    """What one partition waits for."""

    _met: dict[Place, Outside] = field(default_factory=dict)

    def meets(self, place: Place, error: Exception | None) -> None:
        """What happened at a place last; None, and trouble that is neither the source's nor the sink's: nothing is waited
        for there."""
        if error is None:
            self._met.pop(place, None)
            return
        found = next((kind for raised, kind in _KINDS.items() if isinstance(error, raised)), None)
        if found is None:
            self._met.pop(place, None)
        else:
            self._met[place] = found

    @property
    def outside(self) -> Outside | None:
        """What is waited for now; a source before a sink."""
        return min(self._met.values(), key=list(Outside).index, default=None)

    def passing(self, place: Place, say: Callable[[str], None], what: str) -> Passing:
        """Trouble of a source, a sink or a disk is said to `say` with `what`, and over; it is tried again.  BufferError is
        said and raised, as whoever has output in memory may make room."""
        return Passing(self, place, say, what)


@dataclass(slots=True)
class Passing:
    """What `Waits.passing` returns.  A class, as a host enters one for each partition each time that it looks whether that
    can go on."""

    _waits: Waits
    _place: Place
    _say: Callable[[str], None]
    _what: str

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None:
            self._waits.meets(self._place, None)
            return False
        if isinstance(error, NotYetError):  # nothing is wrong so far, and nothing is known to be right
            return True
        if not isinstance(error, WAITS):
            return False
        self._waits.meets(self._place, error)
        self._say(f"{self._what}: {error}")
        return not isinstance(error, BufferError)
