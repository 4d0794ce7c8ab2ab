"""All that one operator knows of one topology, as a value: what each step of a look finds, and what people are told."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprise.controller.operator.pods.capacity import NOTHING_KNOWN, CapacityForecast
from reprise.controller.operator.pods.witness import PodVerdicts
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.domains import Losses
from reprise.spark_jobs.topology import StreamTopology


@dataclass(frozen=True, slots=True)
class TopologyState:
    """Never changed: each step of a look makes the next one of it."""

    generation: int = 0
    """Of the object."""
    resource: StreamTopology | None = None
    """The spec that is acted upon: the newest valid one."""
    invalid: str = ""
    """Why the newest spec cannot be run."""
    state: RunState | None = None
    """What the records say."""
    losses: Losses | None = None
    """What each failure domain would take; None where none is named, or no node is there."""
    findings: PodVerdicts = field(default_factory=PodVerdicts)
    """What is known of the executors' pods."""
    driver: str = ""
    """Name of its pod."""
    driver_problem: str = ""
    driver_outdated: bool = False
    """It was started with another spec than the newest valid one."""
    completed_at: float | None = None
    """When the newest checkpoint was complete."""
    root: str = ""
    coordinator: str = ""
    forecast: CapacityForecast = NOTHING_KNOWN
    held_back: str = ""
    """Name of the plan that waits for approval."""
    paused_by: str = ""
    problem: str = ""
    """What keeps the operator from seeing or doing what it should."""
    undecided: str = ""
    """Why the coordinator cannot decide."""
    calm: bool = False
    """By the last decision, nothing is to be decided before somebody changes something."""
    unwritten: bool = False
    """The last look wanted a write that it needs, and there was none to spare."""

    @property
    def observation(self) -> Observation | None:
        return self.state.observation if self.state else None

    @property
    def recovering(self) -> bool:
        """Whether an incident is open."""
        return self.observation is not None and self.observation.incident is not None

    @property
    def busy(self) -> bool:
        """Whether there is something to decide or to do, so that a poll of the driver's report is not enough."""
        seen = self.observation
        return (
            seen is None or seen.incident is not None or seen.desired is None or not seen.connected
            or self.unwritten or not self.findings.settled or bool(self.problem) or bool(self.held_back)
            or bool(self.driver_problem) or bool(self.undecided)
        )  # fmt: skip
