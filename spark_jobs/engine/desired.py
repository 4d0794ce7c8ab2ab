"""What the engine is given: the state that the coordinator desires, and where things are.

Frozen values, so that whoever reads one reads it whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Desired:
    """What the coordinator wants: see docs/recovery.md.  `assignment`: partition -> "node#incarnation"."""

    seq: int = 0
    generation: int = -1
    checkpoint: int = 0
    assignment: Mapping[str, str] = field(default_factory=dict)
    retain: bool = False
    punctuate: bool = False
    paused: bool = False
    driver: str = ""
    """The driver's life for which this was decided; another one has none of the states that it speaks of."""
    plan: str = ""
    """Id of the recovery plan that it carries out, for the log."""


@dataclass(frozen=True, slots=True)
class Sites:
    """Where things are: sink output folder, checkpoint location (URL)."""

    sink: str
    checkpoints: str
