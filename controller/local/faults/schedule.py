"""Which faults are due: pure, so that a schedule can be tested without a cluster or a clock.

Invariant: every fault fires at most once, in the order of the file among those due together; one that is tied to
another (`after`) waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprise.controller.local.faults.faults import Fault, Trigger


@dataclass(frozen=True, slots=True)
class Moment:
    """What the run has reached.  `elapsed_s` is None until the first batch is released."""

    now: float
    elapsed_s: float | None
    horizon: int
    milestones: Mapping[str, int]


@dataclass(slots=True)
class Schedule:
    """The faults of a run with what became of them."""

    faults: tuple[Fault, ...]
    fired: dict[int, float] = field(default_factory=dict)
    _met: dict[int, float] = field(default_factory=dict)

    def due(self, moment: Moment) -> list[Fault]:
        """Faults to carry out now."""
        found = []
        for index, fault in enumerate(self.faults):
            if index in self.fired:
                continue
            if index not in self._met and self._reached(fault.trigger, moment):
                self._met[index] = self._since(fault.trigger, moment)
            if index in self._met and moment.now >= self._met[index] + fault.trigger.delay_s:
                self.fired[index] = moment.now
                found.append(fault)
        return found

    @property
    def unfired(self) -> list[Fault]:
        """What has not happened."""
        return [fault for index, fault in enumerate(self.faults) if index not in self.fired]

    def _reached(self, trigger: Trigger, moment: Moment) -> bool:
        match trigger.kind:
            case "at":
                return moment.elapsed_s is not None and moment.elapsed_s >= trigger.value
            case "batch":
                return moment.horizon >= trigger.value
            case "on":
                return moment.milestones[trigger.of] >= trigger.value
        return self._other(trigger.of) is not None

    def _since(self, trigger: Trigger, moment: Moment) -> float:
        """A late look must not shift what is tied to a moment that has passed."""
        if trigger.kind == "after":
            return self._other(trigger.of) or moment.now
        if trigger.kind == "at" and moment.elapsed_s is not None:
            return moment.now - (moment.elapsed_s - trigger.value)
        return moment.now

    def _other(self, label: str) -> float | None:
        for index, at in self.fired.items():
            if label in (self.faults[index].name, self.faults[index].label):
                return at
        return None
