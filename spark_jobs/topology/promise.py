"""What is promised of an output: the words for it, which everything that shows it has from here.

`reprise.spark_jobs.topology.guarantees` derives them from the operators upstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PERHAPS = "precise, perhaps by checkpoint"
"""Of an output of which it cannot be told whether its batches wait for a checkpoint."""


class Guarantee(StrEnum):
    """What an output shows after failures."""

    PRECISE = "precise"
    """Each batch as without a failure, and at once."""
    PRECISE_BY_CHECKPOINT = "precise, by checkpoint"
    """Each batch once, and none that a replay could change: it is shown with the checkpoint that covers it."""
    GAP = "gap"
    """Batches may lack rows, and are marked then; all others are as without a failure."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised of one output."""

    guarantee: Guarantee | None
    """None: it cannot be told here whether batches wait for a checkpoint; each is shown once in any case."""
    limited_by: tuple[str, ...] = ()
    """Operators at or upstream of it without which it would be more; empty where it is `precise`, or where the order of the
    batches limits all outputs."""
    given_up: tuple[str, ...] = ()
    """What settings of sources upstream of it, and of its sink, give up, for people: it is promised but for that."""

    @property
    def whole(self) -> bool:
        """Whether no more could be promised."""
        return self.guarantee is Guarantee.PRECISE and not self.given_up

    @property
    def because(self) -> str:
        """Why it is no more, for people; empty where it is `precise` and nothing is given up."""
        return "; ".join(filter(None, (self._limits, *self.given_up)))

    @property
    def _limits(self) -> str:
        names = ", ".join(self.limited_by)
        match self.guarantee:
            case Guarantee.PRECISE:
                return ""
            case Guarantee.GAP:
                return f"amnesia of {names}"
            case Guarantee.PRECISE_BY_CHECKPOINT if not self.limited_by:
                return "batch.order: arrival"
            case Guarantee.PRECISE_BY_CHECKPOINT:
                return f"not deterministic: {names}"
            case None:
                return f"no word whether they are deterministic: {names}" if names else ""

    def __str__(self) -> str:
        said = PERHAPS if self.guarantee is None else self.guarantee.value
        return f"{said} ({self.because})" if self.because else said


NO_PROMISE = Promise(None)
"""Of an operator without an output."""
